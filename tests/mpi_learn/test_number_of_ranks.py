"""With a total batch, a training is the same on any number of ranks, as independent trainings show."""

from __future__ import annotations

import json
from functools import cache
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.optional_packages import needs
from tests.world import in_world

pytestmark = pytest.mark.mpi

CASES = ("shards", "total", "streamed shards", "per rank", "random total")
MORE = ("weighted shards", "streamed total", "accumulated")
SOME = {"keras": (), "torch": CASES}
ALL = {"keras": CASES + MORE, "torch": MORE}
"""Framework -> trainings on one and three ranks, and those on one to four ranks, which run with ``make test-all``."""


@cache
def on_widths(framework: str, widths: str, cases: tuple[str, ...]) -> dict:
    with TemporaryDirectory() as folder:
        arguments = (framework, folder, widths, ",".join(cases))
        done = in_world(max(map(int, widths.split(","))), "-m", "tests.mpi_learn.programs.widths", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def found(framework: str, case: str, *, thorough: bool) -> list[dict]:
    """What each number of ranks has found, one rank first."""
    cases = SOME[framework] + ALL[framework] if thorough else SOME[framework]
    return on_widths(framework, "1,2,3,4" if thorough else "1,3", cases)[case]


def rows(*names: str) -> list:
    """Those trainings, of each framework: some by default, and all thoroughly."""
    made = []
    for framework in ("keras", "torch"):
        marks = [needs(framework)]
        made += [pytest.param(framework, name, False, marks=marks) for name in SOME[framework] if name in names]
        marks = [*marks, pytest.mark.thorough]
        chosen = SOME[framework] + ALL[framework]
        made += [pytest.param(framework, name, True, marks=marks) for name in chosen if name in names]
    return made


SAME = ("shards", "total", "weighted shards", "streamed shards", "streamed total", "accumulated")


@pytest.mark.parametrize(("framework", "case", "thorough"), rows(*SAME))
def test_a_total_batch_trains_alike_on_any_number_of_ranks(framework, case, thorough):
    alone, *others = found(framework, case, thorough=thorough)
    assert len(alone["history"]["loss"]) == 3
    for other in others:
        assert other["history"].keys() == alone["history"].keys()
        for name, values in alone["history"].items():
            assert other["history"][name] == pytest.approx(values, abs=1e-5), name
        assert np.abs(np.subtract(other["weights"], alone["weights"])).max() < 1e-5
        assert other["notes"] == alone["notes"] == []


@pytest.mark.parametrize(("framework", "case", "thorough"), rows("per rank", "random total"))
def test_other_trainings_depend_on_the_number_of_ranks(framework, case, thorough):
    """Without that, the comparison above would show nothing."""
    alone, *others = found(framework, case, thorough=thorough)
    assert all(abs(other["history"]["loss"][-1] - alone["history"]["loss"][-1]) > 1e-3 for other in others)


@pytest.mark.parametrize(("framework", "case", "thorough"), rows("random total"))
def test_a_model_that_needs_shards_to_train_alike_is_named_at_the_start(framework, case, thorough):
    for one in found(framework, case, thorough=thorough):
        (note,) = one["notes"]
        assert "draws random numbers and has batch statistics" in note
        assert "batch_size: {total: …, shards: …}" in note
