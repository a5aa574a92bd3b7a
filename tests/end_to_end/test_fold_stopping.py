"""``folds: {number: 5, stop_early: true}`` in real searches, in this process and under ``mpirun``."""

from __future__ import annotations

import json
import re
import sqlite3

import numpy as np
import pytest

import mpi_opt
from mpi_opt.configuration.read_study import read_study
from mpi_opt.configuration.sections import FoldsSection
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.folds.fold_stopping import MIN_COMPARED_TRIALS
from mpi_opt.core.search_space.space import Real
from mpi_opt.errors import ConfigurationError
from mpi_opt.study.study import Study
from mpi_opt.views.text.rank_plan import recommendation
from mpi_opt.views.text.tables import trial_page
from tests.end_to_end.objectives import uneven_folds
from tests.world import in_world

SEARCH = ("-m", "mpi_opt", "search")
FOLDS = {"number": 5, "stop_early": True}


@pytest.fixture
def search(space_file, tmp_path):
    """Runs a search on `n_ranks` ranks (1: in this process); returns the rows of its trials and of their folds."""

    def begin(n_ranks: int, trials: int = 40, folds=FOLDS, name: str = "test", size: int = 1, **options):
        strategy = "evolutionary" if options else "random"
        store = f"sqlite:///{tmp_path}/{name}.db"
        if n_ranks == 1:
            shared = {"space": {"x": Real(0.0, 2.0)}, "study": "test", "store": store, "seed": 3}
            mpi_opt.search(uneven_folds, trials=trials, strategy=strategy, folds=folds, options=options, **shared)
        else:
            wanted = {"strategy": strategy, "trials": trials, "seed": 3, "options": options}
            path = space_file("uneven_folds", store=store, folds=folds, search=wanted, blocks={"size": size})
            done = in_world(n_ranks, *SEARCH, str(path), cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            trials_ = database.execute(
                "SELECT number, state, figure_of_merit, parameters FROM trials ORDER BY number"
            ).fetchall()
            folds_: dict[int, list[float]] = {number: [] for number, *_ in trials_}
            for key, figure in database.execute("SELECT trial_id, figure_of_merit FROM folds ORDER BY trial_id, fold"):
                folds_[key % 10**9].append(figure)
        return trials_, folds_

    return begin


def test_clearly_worse_trials_do_not_run_all_their_folds_and_the_best_one_does(search):
    trials, folds = search(1)
    everything, _ = search(1, folds=5, name="all")
    best = min((figure, number) for number, state, figure, _ in trials if state == "complete")
    assert best == min((figure, number) for number, state, figure, _ in everything if state == "complete")
    pruned = [number for number, state, *_ in trials if state == "pruned"]
    assert len(pruned) > 15
    assert min(pruned) > MIN_COMPARED_TRIALS
    assert sum(map(len, folds.values())) < 0.75 * 5 * len(trials)
    for number, state, figure, _ in trials:
        if state == "complete":
            assert len(folds[number]) == 5
            assert figure == pytest.approx(np.mean(folds[number]))
    for number in pruned:  # as far from the best trial of that time as on the folds that were run
        _, before = min((figure, n) for n, state, figure, _ in trials[:number] if state == "complete")
        n_run = len(folds[number])
        assert 1 <= n_run < 5
        further = np.mean(np.subtract(folds[number], folds[before][:n_run]))
        assert further > 0
        assert trials[number][2] == pytest.approx(np.mean(folds[before]) + further)


@pytest.mark.mpi
def test_all_ranks_of_a_block_leave_a_trial_together_even_if_some_failed(search):
    trials, folds = search(4, size=3)
    states = [state for _, state, *_ in trials]
    assert [number for number, state, *_ in trials if state == "failed"] == [20, 21, 22]
    assert states.count("pruned") > 10
    assert all(len(folds[number]) == 5 for number, state, *_ in trials if state == "complete")


@pytest.mark.mpi
def test_folds_that_run_side_by_side_all_run(search):
    trials, folds = search(6, size=5, trials=12)
    assert {state for _, state, *_ in trials} == {"complete"}
    assert {len(figures) for figures in folds.values()} == {5}


def test_a_search_that_was_broken_off_stops_the_same_trials(search):
    search(1, trials=23, name="parts")
    assert search(1, name="parts") == search(1, name="whole")


@pytest.mark.mpi
def test_a_reproducible_search_stops_the_same_trials_whatever_the_timing(search):
    runs = [search(n, reproducible=True, lag=4, name=f"on{n}") for n in (2, 4)]
    assert runs[0] == runs[1]
    assert [state for _, state, *_ in runs[0][0]].count("pruned") > 5


def test_a_study_may_begin_to_stop_early_and_its_number_of_folds_stays(search, tmp_path):
    trials, _ = search(1, folds=5, trials=10)
    assert {state for _, state, *_ in trials} == {"complete"}
    trials, _ = search(1, trials=30)
    assert "pruned" in {state for _, state, *_ in trials[10:]}
    with sqlite3.connect(tmp_path / "test.db") as database:
        assert json.loads(database.execute("SELECT configuration FROM studies").fetchone()[0])["folds"] == 5
    with pytest.raises(ConfigurationError, match="was created with another folds: 5, now 4"):
        search(1, folds={"number": 4, "stop_early": True})


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"search": {"strategy": "halving", "options": {"max_budget": 9}}}, "resume from one another"),
        ({"search": {"strategy": "population"}}, "resume from one another"),
        ({"objective": "external"}, "the program that runs the trials"),
        ({"folds": {"number": 0, "stop_early": True}}, "folds.number"),
        ({"folds": {"number": 3, "stop_erly": True}}, "did you mean stop_early?"),
        ({"folds": "many"}, "expected an integer, found 'many'"),
    ],
)
def test_invalid_values_are_refused_with_a_message(sections, message):
    content = {"objective": "any.py:thing", "space": {"x": {"type": "real", "low": 0.0, "high": 2.0}}, "folds": FOLDS}
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        read_study(content | sections)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selection": "median"}, "folds are compared by the mean of one figure of merit"),
        ({"direction": ["minimize", "minimize"]}, "folds are compared by the mean of one figure of merit"),
        ({"strategy": "population"}, "resume from one another"),
    ],
)
def test_a_search_in_python_refuses_folds_that_cannot_be_compared(options, message):
    with pytest.raises(ConfigurationError, match=message):
        mpi_opt.search(uneven_folds, space={"x": Real(0.0, 2.0)}, trials=1, folds=FOLDS, store="sqlite://", **options)


@pytest.mark.parametrize(("given", "kept"), [(5, 5), ({"number": 5}, 5), (FOLDS, FOLDS)])
def test_folds_may_be_a_number_or_keys_and_the_command_line_changes_the_number(given, kept, space_file):
    path = space_file("uneven_folds", folds=given)
    assert read_study(path).model_dump(mode="json")["folds"] == kept
    changed = read_study(path, {"folds.number": 3}).folds
    assert changed == FoldsSection(number=3, stop_early=given == FOLDS)


def test_early_stopping_is_shown(search, tmp_path):
    trials, folds = search(1)
    number = next(number for number, state, *_ in trials if state == "pruned")
    study = Study.open(f"sqlite:///{tmp_path}/test.db", "test")
    page = trial_page(study.record, study.trials[number], study.folds([number]), [], [])
    assert f"pruned after {len(folds[number])} of 5 folds" in page
    assert "--block-size 2 or less runs them in turn" in recommendation(BlockLayout(6, 5, 5), 40, stop_early=True)
