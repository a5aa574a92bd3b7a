"""One owner for each piece of state: only its module changes it, and no other one keeps it under a second name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

OWNERS = {
    "mpi_learn/training/state.py": "epochs_before steps_s n_samples ended_by best_weights best_statistics waited",
    "mpi_opt/coordinator/trials/trial_queue.py": "waiting running held ended n_begun is_requeued is_held",
    "mpi_opt/coordinator/blocks/block_pool.py": "idle started_at_s",
    "mpi_opt/coordinator/blocks/block_membership.py": "blocks spare leaving lost given_up retired",
    "mpi_opt/coordinator/study_state.py": "n_usable has_repeated_step past",
    "mpi_opt/coordinator/trials/from_others.py": "running",
    "mpi_opt/coordinator/blocks/faults.py": "kind since_s",
    "mpi_opt/strategies/points/bookkeeping.py": "pending observed n_asked n_figures",
    "mpi_opt/views/text/progress_counts.py": "blocks busy ended best n_ended_here began",
    "mpi_opt/study/study.py": "confirmation trials",
}
"""Module -> the attributes that only it changes."""

MUTATORS = frozenset(
    {"add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "insert", "pop"}
    | {"intersection_update", "popitem", "popleft", "remove", "reverse", "setdefault", "sort", "subtract", "update"}
    | {"symmetric_difference_update"}
)
"""The methods of lists, sets and mappings that change them."""


def is_own(node: ast.expr) -> bool:
    """Whether an attribute of `node` belongs to the object whose method this is."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def attributes_of_others(target: ast.expr) -> Iterator[str]:
    """The attributes of other objects that an assignment to `target`, or its deletion, changes."""
    match target:
        case ast.Attribute(value=value, attr=name) if not is_own(value):
            yield name
        case ast.Subscript(value=value) | ast.Starred(value=value):
            yield from attributes_of_others(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from attributes_of_others(part)


def changed(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines that change an attribute of another object, or keep it as an attribute, and its name."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in MUTATORS:
                targets = [value]
            case _:
                continue
        for target in targets:
            for name in attributes_of_others(target):
                yield node.lineno, name
        match node:
            case ast.Assign(targets=[ast.Attribute()], value=ast.Attribute(value=value, attr=name)):
                if not is_own(value):
                    yield node.lineno, name


def test_only_its_owner_changes_a_piece_of_state():
    owners: dict[str, set[str]] = {}
    for module, names in OWNERS.items():
        for name in names.split():
            owners.setdefault(name, set()).add(module)
    found = []
    for package in ("mpi_learn", "mpi_opt"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            for line, name in changed(ast.parse(path.read_text())):
                if module not in owners.get(name, {module}):
                    found.append(f"{module}:{line} changes {name}, which {', '.join(sorted(owners[name]))} owns")
    assert found == []


@pytest.mark.parametrize("module", OWNERS)
def test_an_owner_has_the_attributes_that_it_owns(module):
    tree = ast.parse((ROOT / module).read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    fields = {node.target.id for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.simple}
    assert set(OWNERS[module].split()) <= names | fields


@pytest.mark.parametrize(
    "code",
    [
        "queue.running = {}",
        "self.queue.running[3] = attempt",
        "del self.state.queue.running[3]",
        "pool.running += [block]",
        "first, pool.running = 1, 2",
        "pool.running: list[int] = []",
        "self.queue.running.pop(3)",
        "self.running = state.running",
    ],
)
def test_each_way_to_change_the_state_of_another_object_is_found(code):
    assert [name for _, name in changed(ast.parse(code))] == ["running"]


@pytest.mark.parametrize(
    "code", ["self.running = {}", "n = len(queue.running)", "queue.running.get(3)", "running = []"]
)
def test_reading_the_state_of_another_object_is_allowed(code):
    assert not list(changed(ast.parse(code)))
