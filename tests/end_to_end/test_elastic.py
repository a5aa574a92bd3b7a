"""Idle ranks join running trials, with the same results."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.dying_models import write_samples
from tests.end_to_end.elastic_objectives import EPOCH_S
from tests.end_to_end.searches import SEARCH
from tests.mpirun import SURVIVES_LOST_RANKS, mpirun
from tests.optional_packages import needs
from tests.world import in_world

pytestmark = pytest.mark.mpi
OBJECTIVES = Path(__file__).with_name("elastic_objectives.py")
MODELS = Path(__file__).with_name("dying_models.py")
EXPECTED = [sum(1 / epoch for epoch in range(1, total + 1)) for total in (40, 3, 3)]


@pytest.fixture
def search(space_file, query, tmp_path):
    """Runs a search of three trials on three blocks; returns its figures of merit and the ranks of its attempts."""

    def run(objective, run_ranks=in_world):
        path = space_file(
            objective,
            OBJECTIVES,
            search={"strategy": "random", "trials": 3, "seed": 3},
            blocks={"elastic": True},
        )
        done = run_ranks(4, *SEARCH, str(path), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        figures = [value for (value,) in query("SELECT figure_of_merit FROM trials ORDER BY number")]
        attempts = query(
            "SELECT a.ranks, a.outcome FROM attempts a JOIN trials t ON t.id = a.trial_id "
            "WHERE t.number = 0 ORDER BY attempt"
        )
        return figures, [(ranks.split(","), outcome) for ranks, outcome in attempts]

    return run


def test_idle_ranks_join_a_running_function_of_the_user(search, query):
    figures, attempts = search("summed")
    assert figures == pytest.approx(EXPECTED)
    first, *_, last = attempts
    assert (len(first[0]), first[1]) == (1, "moved")
    assert len(last[0]) > 1
    assert last[1] == "complete"
    assert all(set(before) < set(after) for (before, _), (after, _) in itertools.pairwise(attempts))
    ((duration_s, first_s, last_s),) = query(
        "SELECT t.duration_s, min(a.started_at), max(a.finished_at) FROM trials t "
        "JOIN attempts a ON a.trial_id = t.id WHERE t.number = 0"
    )
    ((elapsed_s,),) = query(f"SELECT (julianday('{last_s}') - julianday('{first_s}')) * 86400")
    assert 40 * EPOCH_S / 3 < duration_s < elapsed_s + 0.1, "the duration is that of all attempts together"


@pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks")
def test_a_rank_that_dies_when_it_joins_a_trial_loses_no_epoch(search, tmp_path):
    figures, attempts = search("dying", mpirun)
    assert (tmp_path / "died").exists()
    assert figures == pytest.approx(EXPECTED)
    assert {outcome for _, outcome in attempts} == {"moved", "lost", "complete"}


@needs("torch")
@pytest.mark.parametrize("folds", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_idle_ranks_join_a_training_which_has_the_same_result(query, tmp_path, folds):
    """Two folds that have run one after the other then run at the same time."""
    write_samples(tmp_path)
    (tmp_path / "deaths").write_text("")
    values = {}
    for name, elastic in (("plain", False), ("elastic", True)):
        content = {
            "study": name,
            "store": "sqlite:///test.db",
            "figure_of_merit": "val_loss",
            "space": {"epochs": {"type": "categorical", "categories": [2, 3, 30] if folds > 1 else [4, 6, 60]}},
            "search": {"strategy": "grid", "trials": 3},
            "blocks": {"elastic": elastic},
            "folds": folds,
            "training": {
                "model": f"{MODELS}:build_slow",
                "data": {"train": "samples.npz", "features": "x", "labels": "y", "drop_last": True}
                | ({"validation_fraction": 0.2} if folds == 1 else {}),
                "loss": "cross_entropy",
                "optimizer": {"name": "adam", "learning_rate": 0.01},
                "batch_size": {"total": 48, "shards": 6},
                "epochs": "$epochs",
            },
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        done = in_world(3, *SEARCH, str(path), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        of_study = f"FROM trials t JOIN studies s ON s.id = t.study_id WHERE s.name = '{name}' ORDER BY number"
        values[name] = [value for (value,) in query(f"SELECT figure_of_merit {of_study}")]
    assert values["elastic"] == pytest.approx(values["plain"], abs=1e-5)
    ranks = query(
        "SELECT a.ranks FROM attempts a JOIN trials t ON t.id = a.trial_id JOIN studies s ON s.id = t.study_id "
        "WHERE s.name = 'elastic'"
    )
    assert ("1,2",) in ranks
