"""A trial with a total batch that loses ranks continues on the others from its last epoch, with the same result."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.end_to_end.dying_models import write_samples
from tests.end_to_end.searches import SEARCH
from tests.mpirun import SURVIVES_LOST_RANKS, mpirun
from tests.optional_packages import needs
from tests.world import in_world

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks"),
]
MODELS = Path(__file__).with_name("dying_models.py")
EPOCHS = 10
LOSS = {"torch": "cross_entropy", "keras": "sparse_categorical_crossentropy"}


@pytest.fixture
def search(query, tmp_path):
    """Runs a search of one trial on a block of three ranks, of which those in `deaths` die; returns its loss."""
    write_samples(tmp_path)

    def run(framework: str, name: str, deaths: dict[int, int], batch_size, run_ranks, **sections):
        (tmp_path / "deaths").write_text("".join(f"{rank} {number}\n" for rank, number in deaths.items()))
        (tmp_path / "epochs").write_text("")
        schedule = {"name": "plateau", "metric": "loss", "patience": 1, "warmup_epochs": 1}
        training = {
            "model": f"{MODELS}:build_{framework}",
            "data": {"train": "samples.npz", "features": "x", "labels": "y", "validation_fraction": 0.2},
            "loss": LOSS[framework],
            "optimizer": {"name": "adam", "learning_rate": "$lr", "clip_norm": 1.0, "schedule": schedule},
            "callbacks": [f"{MODELS}:log_epoch"],
            "batch_size": batch_size,
            "epochs": EPOCHS,
        }
        content = {
            "study": name,
            "store": "sqlite:///test.db",
            "figure_of_merit": "val_loss",
            "space": {"lr": {"type": "real", "low": 0.009, "high": 0.011}},
            "search": {"strategy": "random", "trials": 1, "seed": 3},
            "blocks": {"size": 3},
            "training": training,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content | sections))
        done = run_ranks(4, *SEARCH, str(path), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        ((loss, state),) = query(
            f"SELECT figure_of_merit, state FROM trials t JOIN studies s ON s.id = t.study_id WHERE s.name = '{name}'"
        )
        assert state == "complete"
        return loss

    return run


def epochs(tmp_path):
    return list(map(int, (tmp_path / "epochs").read_text().split()))


@pytest.mark.parametrize(
    ("framework", "dying"),
    [
        pytest.param("torch", 3, marks=needs("torch")),
        pytest.param("torch", 1, marks=[needs("torch"), pytest.mark.thorough]),
        pytest.param("keras", 2, marks=[needs("keras"), pytest.mark.thorough]),
        pytest.param("keras", 1, marks=[needs("keras"), pytest.mark.thorough]),
    ],
)
def test_a_trial_that_loses_a_rank_continues_on_the_others(search, query, tmp_path, framework, dying):
    """Rank 1 leads the block, and its callbacks are called."""
    batch_size = {"total": 48, "shards": 6}
    calm = search(framework, "calm", {}, batch_size, in_world)
    assert epochs(tmp_path) == list(range(EPOCHS))
    stormy = search(framework, "stormy", {dying: 40}, batch_size, mpirun)
    assert (tmp_path / f"died-{dying}").exists()
    assert stormy == pytest.approx(calm, abs=1e-5)
    seen = epochs(tmp_path)
    assert sorted(set(seen)) == list(range(EPOCHS))
    assert len(seen) <= EPOCHS + 1, "only the epoch in which the rank died may be repeated"
    others = [str(rank) for rank in (1, 2, 3) if rank != dying]
    rows = query(
        "SELECT a.ranks, a.outcome FROM attempts a JOIN trials t ON t.id = a.trial_id "
        "JOIN studies s ON s.id = t.study_id WHERE s.name = 'stormy' ORDER BY attempt"
    )
    assert rows == [("1,2,3", "lost"), (",".join(others), "complete")]
    ((detail,),) = query("SELECT detail FROM events WHERE kind = 'trial_continued'")
    assert detail == f"trial 0 continues from its last epoch on 2 ranks ({','.join(others)})"
    assert query("SELECT count(*) FROM metrics WHERE name = 'val_loss'") == [(2 * EPOCHS,)]
