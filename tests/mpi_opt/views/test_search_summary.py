"""The text at the end of a search."""

from __future__ import annotations

import shlex

import pytest

from mpi_opt.cli.main import run
from mpi_opt.core.search_space.space import Integer, Space
from mpi_opt.store import Store
from mpi_opt.store.events import SEARCH_FINISHED, SEARCH_STOPPED, STUDY_FINISHED
from mpi_opt.study.study import Study
from mpi_opt.views.text.search_summary import search_summary
from tests.mpi_opt.outcomes import an_end, an_outcome
from tests.mpi_opt.store.made_up import start


def test_queued_trials_are_not_left_to_others(tmp_path):
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study("a", strategy="grid", seed=1, configuration={}, space=Space({"x": Integer(0, 9)}))
        store.start(study.id, [start(number, {"x": number}) for number in range(3)])
        store.finish(study.id, [an_end(an_outcome(number, "complete", 0.5, None, 1.0), 1, 0) for number in range(2)])
        store.requeue(study.id, [2], "the search ended")
        store.event(study.id, SEARCH_STOPPED, "")
        text = search_summary(Study.read(store, "a"), "sqlite:///a.db", 2)
    assert "2 of 2 trials have ended; to resume, run the same command again" in text


@pytest.mark.parametrize("store_url", ["sqlite:///a.db", "sqlite://"])
def test_summary_counts_failed_trials_and_names_the_command_that_shows_their_errors(tmp_path, store_url, capsys):
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study("a b", strategy="grid", seed=1, configuration={}, space=Space({"x": Integer(0, 9)}))
        store.start(study.id, [start(number, {"x": number}) for number in range(3)])
        outcomes = [an_outcome(number, "failed", None, None, 1.0, error="ValueError: no") for number in (0, 2)]
        outcomes.append(an_outcome(1, "complete", 0.5, None, 1.0))
        store.finish(study.id, [an_end(outcome, 1, 0) for outcome in outcomes])
        store.event(study.id, STUDY_FINISHED, "")
        lines = search_summary(Study.read(store, "a b"), store_url, 3).splitlines()
    if store_url == "sqlite://":  # in memory: no other command can read it
        assert lines[-1] == "2 of 3 trials failed"
        return
    place = lines.index("2 of 3 trials failed; to see why")
    command = "mpi-opt results --store sqlite:///a.db --study 'a b' --state failed"
    assert lines[place + 1].strip() == command
    arguments = [word.replace("sqlite:///", f"sqlite:///{tmp_path}/") for word in shlex.split(command)[1:]]
    assert run(arguments) == 0
    assert "ValueError: no" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("event", "n_running", "line"),
    [
        (STUDY_FINISHED, 0, None),  # a grid has fewer points than trials were requested, or the target is reached
        (SEARCH_STOPPED, 0, "2 of 3 trials have ended; to resume, run the same command again"),
        (SEARCH_FINISHED, 1, "2 of 3 trials have ended; a workload system still runs 1"),
    ],
)
def test_summary_says_how_to_continue_unless_the_study_is_finished(tmp_path, event, n_running, line):
    with Store.open(str(tmp_path / "a.db")) as store:
        study = store.create_study("a", strategy="grid", seed=1, configuration={}, space=Space({"x": Integer(0, 9)}))
        store.start(study.id, [start(number, {"x": number}) for number in range(2 + n_running)])
        store.finish(study.id, [an_end(an_outcome(number, "complete", 0.5, None, 1.0), 1, 0) for number in range(2)])
        store.event(study.id, event, "")
        lines = search_summary(Study.read(store, "a"), "sqlite:///a.db", 3).splitlines()
    assert [one for one in lines if "trials have ended" in one] == ([] if line is None else [line])
