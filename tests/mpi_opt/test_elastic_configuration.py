"""Which searches may be elastic."""

from __future__ import annotations

import pytest

from mpi_opt.configuration.read_study import read_study
from mpi_opt.errors import ConfigurationError

TRAINING = {"model": "m.py:build", "loss": "mse", "batch_size": {"total": 96}}

IS_TRAINING = {
    "objective": "train",
    "figure_of_merit": "val_loss",
    "training": TRAINING | {"parameters": {"x": "$x"}},
}


def read(**changed):
    content = {"objective": "a.py:f", "space": {"x": {"type": "real", "low": 0, "high": 1}}}
    return read_study(content | {"blocks": {"size": 2, "elastic": True}} | changed)


def test_functions_and_trainings_with_a_total_batch_may_be_elastic():
    assert read().blocks.elastic
    assert read(**IS_TRAINING)
    assert read(**IS_TRAINING, folds=3)
    assert read(blocks={"elastic": "merit"}).blocks.elastic == "merit"


@pytest.mark.parametrize(
    ("changed", "cure"),
    [
        ({"objective": "train", "training": TRAINING | {"batch_size": 96}}, "training.batch_size: {total: …}"),
        ({"objective": "train", "training": TRAINING | {"pipeline": {"stages": 2}}}, "remove it"),
        ({"folds": 3}, "remove it, or folds"),
        (IS_TRAINING | {"folds": {"number": 3, "stop_early": True}}, "remove it, or folds.stop_early"),
        ({"objective": "external"}, "remove it"),
        (
            {"objective": "train", "training": TRAINING, "figure_of_merit": ["val_loss", "seconds"]}
            | {"direction": ["minimize", "minimize"]},
            "remove it, or this figure of merit",
        ),
    ],
    ids=["per-rank", "pipeline", "folds", "stop-early", "external", "duration"],
)
def test_trials_whose_number_of_ranks_cannot_change_are_refused_in_one_sentence(changed, cure):
    with pytest.raises(ConfigurationError, match=r"blocks\.elastic") as raised:
        read(**changed)
    assert raised.value.cure.endswith(cure)
