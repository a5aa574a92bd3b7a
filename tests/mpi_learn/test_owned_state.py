"""Each piece of state of a training has one owner, whose methods alone change it."""

import ast
import re
from pathlib import Path

import pytest

import mpi_learn
from mpi_learn.training.state import State, Stopping

PACKAGE = Path(mpi_learn.__file__).parent
OWNED = {
    "training/state.py": {*vars(State(Stopping(None, None)))},
    "optimizers/learning_rate.py": {"chosen"},
}
"""The module of an owner -> the attributes that only this module changes."""
CHANGES = {"append", "replace", "remember", "restore"}
"""Methods that change an attribute of an owner."""


def changed(tree):
    """The attributes of objects other than ``self`` that a module assigns, deletes or changes by a method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                yield node.attr
        elif isinstance(node, ast.Attribute) and node.attr in CHANGES and isinstance(node.value, ast.Attribute):
            yield node.value.attr


def sources():
    """The modules of the package without `mpi_learn.testing`, which runs algorithms without a training."""
    found = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    return {path: text for path, text in found.items() if not path.startswith("testing/")}


@pytest.mark.parametrize("owner", OWNED)
def test_only_its_owner_changes_the_state_of_a_training(owner):
    found = {path: OWNED[owner] & {*changed(ast.parse(text))} for path, text in sources().items() if path != owner}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_training_computes_the_roles_of_its_ranks_once():
    calls = {path: text.count("rank_layout_of(") for path, text in sources().items() if "rank_layout_of(" in text}
    before_trainings = {"training/timing/measure_times.py": 1}  # chooses the samples of short trainings
    assert calls == {"algorithms/rank_layout.py": 1, "training/context.py": 1} | before_trainings


def test_only_the_folder_of_the_gan_and_the_key_of_its_section_name_its_models():
    """Training, data and algorithms use the interface `Composition`, which also fits other models of several models."""
    others = {path: text for path, text in sources().items() if not path.startswith("models/gan/")}
    assert {path for path, text in others.items() if re.search(r"\.gan\b", text)} == {"training/configuration.py"}
    named = {
        path for path, text in others.items() if "discriminator" in re.sub(r"discriminator=|Discriminator", "", text)
    }
    assert named == {"models/building/users_model.py", "training/configuration.py"}
