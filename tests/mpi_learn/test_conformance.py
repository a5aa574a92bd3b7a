"""Every kind of model trains as its framework trains it, on one rank and on three, or is refused in one sentence."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.mpi_learn.conformance.keras_rows import ROWS as KERAS
from tests.mpi_learn.conformance.rows import Row
from tests.mpirun import mpirun
from tests.optional_packages import is_installed, needs
from tests.world import in_world

PROGRAM = ("-m", "tests.mpi_learn.conformance.run")
ROWS = {"keras": KERAS}
if is_installed("torch"):
    from tests.mpi_learn.conformance.keras_torch_rows import ROWS as KERAS_ON_TORCH
    from tests.mpi_learn.conformance.torch_rows import ROWS as TORCH

    ROWS |= {"torch": TORCH, "keras_torch": KERAS_ON_TORCH}
TRAINED = [(framework, name) for framework, rows in ROWS.items() for name, row in rows.items() if not row.refused]
REFUSED = [(framework, name) for framework, rows in ROWS.items() for name, row in rows.items() if row.refused]
SEVERAL_RANKS = {
    *("moving averages of the weights", "weights by output", "overridden train_step", "add_loss", "counters"),
    "own classes",
}
"""Rows of Keras whose sums, weights or state several ranks could combine wrongly.

`test_keras_losses.py` compares sums of other rows in one process: those of masks and weights.
"""
KERAS_ROWS = {1: {name for name, row in KERAS.items() if row.is_representative}, 3: SEVERAL_RANKS}
"""Number of ranks -> rows of Keras that ``make test`` trains; the others are thorough."""
assert KERAS_ROWS[3] <= KERAS_ROWS[1]


def is_thorough(framework: str, name: str, n_ranks: int) -> bool:
    if framework == "keras":
        return not KERAS[name].refused and name not in KERAS_ROWS[n_ranks]
    return framework == "keras_torch"


def marked(chosen: list[tuple[str, str]], n_ranks: int) -> list[Any]:
    """Parameters of a test; the rows of PyTorch, which run together, need torchmetrics too."""
    packages = {"torch": [needs("torch", "torchmetrics")], "keras": [], "keras_torch": [needs("keras", "torch")]}
    thorough = {True: [pytest.mark.thorough], False: []}
    return [pytest.param(*one, marks=[*packages[one[0]], *thorough[is_thorough(*one, n_ranks)]]) for one in chosen]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(framework, number of ranks, name of a row) -> what `run` wrote.

    It starts once for the rows of ``make test``, and once for the others.
    """
    folder = tmp_path_factory.mktemp("conformance")

    @cache
    def start(framework: str, n_ranks: int, *names: str) -> dict[str, Any]:
        arguments = (*PROGRAM, framework, str(folder), *names)
        if framework == "keras_torch":  # the ranks of the world have loaded Keras with TensorFlow
            done = mpirun(n_ranks, *arguments, timeout=400, env={"KERAS_BACKEND": "torch"})
        else:
            done = in_world(n_ranks, *arguments, timeout=400)
        assert done.returncode == 0, done.stderr
        return json.loads((folder / f"{framework}-{n_ranks}.json").read_text())

    return lambda framework, n_ranks, name: start(framework, n_ranks, *together(framework, n_ranks, name))[name]


def together(framework: str, n_ranks: int, name: str) -> list[str]:
    """The names of the rows that are trained with a row: those of ``make test``, or the others."""
    kind = is_thorough(framework, name, n_ranks)
    return [
        one
        for one, row in ROWS[framework].items()
        if is_thorough(framework, one, n_ranks) == kind and (not row.refused or row.ranks == n_ranks)
    ]


def row_of(framework: str, name: str) -> Row:
    return ROWS[framework][name]


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("framework", "name"), marked(TRAINED, 1), ids=map("-".join, TRAINED))
def test_model_trains_as_by_its_framework(found, framework, name):
    ours, row = found(framework, 1, name), row_of(framework, name)
    assert not {"refused", "failed"} & set(ours), ours
    theirs = ours["expected"]
    np.testing.assert_allclose(ours["weights"], theirs["weights"], atol=1e-4)
    if framework != "torch":
        assert set(ours["history"]) == set(theirs["history"])
    for key, values in theirs["history"].items():
        pairs = [(one, other) for one, other in zip(ours["history"][key], values, strict=True) if other is not None]
        np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-4, atol=1e-4, err_msg=key)
    assert (ours["saved"], ours["same"]) == (row.saved, True)


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("framework", "name"), marked(TRAINED, 3), ids=map("-".join, TRAINED))
def test_three_ranks_train_like_one(found, framework, name):
    row = row_of(framework, name)
    on_three, alone = found(framework, 3, name), found(framework, 1, name)
    assert not {"refused", "failed"} & set(on_three), on_three
    assert set(on_three["history"]) == set(alone["history"])
    if not row.is_exact:
        return
    np.testing.assert_allclose(on_three["weights"], alone["weights"], atol=1e-4)
    for key, values in alone["history"].items():
        if key not in row.loose:
            np.testing.assert_allclose(on_three["history"][key], values, rtol=1e-3, atol=1e-4, err_msg=key)


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("framework", "name"), marked(REFUSED, 1), ids=map("-".join, REFUSED))
def test_untrainable_model_is_refused_in_one_sentence(found, framework, name):
    row = row_of(framework, name)
    seen = found(framework, row.ranks, name)
    message = seen.get("refused", "")
    assert row.refused in message, seen
    assert "\n  → " in message, "without a cure"
    assert message.count("\n") <= 1, "a sentence, and one on what to do"


def test_every_row_has_a_sentence_of_its_own_for_the_documentation():
    for rows in ROWS.values():
        sentences = [row.says for row in rows.values()]
        assert len(set(sentences)) == len(sentences)


def test_table_has_forty_models():
    assert sum(not row.refused for row in KERAS.values()) >= 40
