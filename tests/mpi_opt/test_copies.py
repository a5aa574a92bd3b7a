"""Values that a user's strategy may copy, pickle or send to another process."""

from __future__ import annotations

import copy
import pickle

import pytest

from mpi_opt.core.figures import Measured
from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space
from mpi_opt.core.trial import Failed, Proposal, TrialRecord
from mpi_opt.strategies.strategy import Decision
from tests.mpi_opt.outcomes import a_fold, an_outcome

SPACE = Space({"x": Real(0, 1), "n": Integer(1, 8, "log-uniform"), "c": Categorical((1, None)), "y": Real(1, 2)})
POINT = {"x": 0.5, "n": 2, "c": None}
VALUES = [
    Measured(0.25, 0.125),
    (Measured(0.25, 0.125), Measured(-1e300, 5e-324)),
    Failed("out of memory"),
    Proposal(3, POINT, 9.0, 1),
    SPACE,
    Decision.STOP,
    a_fold(0, 0.5, 1.0, {"loss": [1.0, 0.5]}),
    an_outcome(3, "complete", 0.5, 0.1, folds=[a_fold(0, 0.5, 1.0)]),
    TrialRecord(3, "complete", POINT, 0.5),
]


def details(value):
    """The class of a value, and the uncertainties, which equality of floats ignores."""
    parts = value if isinstance(value, tuple) else (value,)
    return [(type(part), getattr(part, "uncertainty", None)) for part in parts]


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda v, p=p: pickle.loads(pickle.dumps(v, p)) for p in (2, pickle.HIGHEST_PROTOCOL)),
    ],
    ids=["copy", "deepcopy", "pickle 2", "pickle"],
)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_copy_has_the_value_and_the_uncertainty(value, copied):
    again = copied(value)
    assert again == value
    assert details(again) == details(value)
