"""Imports: each third-party library is imported in one subpackage, and late. `make lint` checks the layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for package in ("mpi_learn", "mpi_opt") for path in (ROOT / package).rglob("*.py"))
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in SOURCES}

HOMES = {
    "skopt": r"mpi_opt\.strategies\.",
    "keras": r"mpi_learn\.models\.",
    "tensorflow": r"mpi_learn\.(models\.|environment)",
    # vectors on a GPU: their sums over ranks, and the rules that update them
    "torch": r"mpi_learn\.(models\.|devices\.|optimizers\.|algorithms\.(process_group_sum|allreduce)$)",
    "sqlalchemy": r"mpi_opt\.store\.",
    "matplotlib": r"mpi_opt\.views\.",
    "h5py": r"mpi_learn\.(data\.|known_data\.)",
    "uproot": r"mpi_learn\.data\.",
    "pyarrow": r"mpi_learn\.(data\.|known_data\.)",
    "pytest": r"mpi_(opt|learn)\.testing(\.|$)",
    "mpi4py": r"mpi_learn\.mpi\.library$",
}
"""Third-party library -> the modules that may import it."""


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _without_type_blocks(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text())

    class Strip(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if _is_for_types(node) else self.generic_visit(node)

    return Strip().visit(tree)


def test_each_third_party_library_is_imported_in_one_subpackage():
    imports = [(name, *target.split(".")[:1]) for name in MODULES for target in _runtime_imports(name)]
    assert {library for _, library in imports} >= set(HOMES), "a library of the table is imported nowhere"
    assert [one for one in imports if not re.match(HOMES.get(one[1], ""), one[0])] == []


def _runtime_imports(name: str) -> set[str]:
    found = set()
    for node in ast.walk(_without_type_blocks(MODULES[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in MODULES else node.module for a in node.names
            }
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "imported":  # a library of an extra
            found.add(ast.literal_eval(node.args[0]))
    return found


def test_subpackages_import_from_right_to_left():
    done = subprocess.run([Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_only_the_entry_points_use_the_world_communicator():
    code = {str(path.relative_to(ROOT)): re.sub(r'""".*?"""', "", path.read_text(), flags=re.S) for path in SOURCES}
    holders = {name for name, text in code.items() if "MPI.COMM_WORLD" in text}
    assert holders <= {"mpi_opt/messages/links.py", "mpi_learn/cli/commands.py"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("mpi_opt", ["mpi4py", "numpy", "sqlalchemy", "tensorflow", "keras", "torch"]),
        ("mpi_opt.study.study", ["mpi4py", "tensorflow", "keras", "torch", "skopt"]),
        ("mpi_opt.cli.commands.results_commands", ["mpi4py", "tensorflow", "keras", "torch", "sqlalchemy", "skopt"]),
        ("mpi_opt.strategies", ["mpi4py", "skopt", "sklearn", "sqlalchemy"]),
        ("mpi_opt.strategies.bayesian", ["scipy.stats", "scipy.optimize", "scipy.linalg", "scipy.special"]),
        ("mpi_opt.coordinator.run_coordinator", ["scipy", "skopt", "sklearn", "tensorflow", "keras", "torch"]),
        (
            "mpi_opt.worker.worker",
            ["tensorflow", "keras", "torch", "sqlalchemy", "skopt", "sklearn", "typer", "rich", "pydantic", "yaml"],
        ),
        ("mpi_learn", ["mpi4py", "numpy", "tensorflow", "keras", "torch"]),
        ("mpi_learn.training.configuration", ["mpi4py", "numpy", "numba", "h5py", "tensorflow", "keras", "torch"]),
    ],
)
def test_importing_stays_light(module, absent):
    code = f"import sys, {module}; print(sorted(set({absent!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
