"""Who may import whom: the rules of docs/architecture.md, walked over the source."""

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
    "deap": r"mpi_opt\.strategies\.evolutionary",
    "keras": r"mpi_learn\.models\.",
    "tensorflow": r"mpi_learn\.(models\.|environment)",
    "torch": r"mpi_learn\.models\.",
    "sqlalchemy": r"mpi_opt\.store\.",
    "matplotlib": r"mpi_opt\.views\.",
    "optuna": r"mpi_opt\.views\.",
    "h5py": r"mpi_learn\.(data\.|prepare)",
    "uproot": r"mpi_learn\.data\.",
    "pyarrow": r"mpi_learn\.data\.",
    "mpi4py": r"mpi_learn\.(comm|revocable|buffers|cli)$|mpi_opt\.(api|cli_search)$",
}
"""Third-party library -> the modules that may import it."""

FORBIDDEN = [
    (r"mpi_learn\b", r"mpi_opt\b"),
    (r"mpi_learn\.algorithms\.", r"mpi_learn\.(models|data|training)"),
    (r"mpi_learn\.models\.", r"mpi_learn\.(data|algorithms)\b"),
    (r"mpi_learn\.data\.", r"mpi_learn\.(models|algorithms)\b"),
    (r"mpi_opt\.strategies\.", r"mpi_opt\.(store|coordinator|block|views|api)|mpi_learn\.comm"),
    (r"mpi_opt\.(space|trial|folds|layout|roster|rules|reports|configuration)$", r"mpi_opt\.(store|api|block|links)"),
    (r"mpi_opt\.store\.", r"mpi_opt\.(strategies|coordinator|block|views)"),
    (r"mpi_opt\.views\.", r"mpi_opt\.(coordinator|block|links|api)|mpi_learn\.(comm|training)"),
    (r"mpi_opt\.(block|rank|lifeline|links|objective)$", r"mpi_opt\.(store|strategies\.(?!strategy))"),
]
"""Who (a pattern) may not import whom (a pattern)."""


def imports(name: str, path: Path, *, top_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else [node for node in ast.walk(tree) if not _is_for_types(node)]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join(filter(None, [*package.split(".")[: len(package.split(".")) - node.level + 1], node.module]))
                if node.level
                else node.module
            )
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names}
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _without_type_blocks(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text())

    class Strip(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if _is_for_types(node) else self.generic_visit(node)

    return Strip().visit(tree)


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_in_the_direction_of_the_architecture(name):
    path = MODULES[name]
    for target in imports(name, path):
        for importer, imported in FORBIDDEN:
            if re.match(importer, name) and re.match(imported, target):
                types_only = target not in _runtime_imports(name, path)
                assert types_only, f"{name} imports {target}"
        library = target.split(".")[0]
        if library in HOMES:
            assert re.match(HOMES[library], name) or target not in _runtime_imports(name, path), (
                f"{name} imports {target}"
            )


def _runtime_imports(name: str, path: Path) -> set[str]:
    found = set()
    for node in ast.walk(_without_type_blocks(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in MODULES else node.module for a in node.names
            }
    return found


def test_no_two_modules_import_each_other():
    graph = {
        name: {t for t in imports(name, path, top_only=True) if t in MODULES and t != name}
        for name, path in MODULES.items()
    }

    def reaches(start: str) -> set[str]:
        seen, left = set(), list(graph[start])
        while left:
            if (one := left.pop()) not in seen:
                seen.add(one)
                left += graph[one]
        return seen

    assert [name for name in graph if name in reaches(name)] == []


def test_the_world_communicator_stands_at_the_entry_points_alone():
    code = {path.name: re.sub(r'""".*?"""', "", path.read_text(), flags=re.S) for path in SOURCES}
    holders = {name for name, text in code.items() if "MPI.COMM_WORLD" in text}
    assert holders <= {"api.py", "cli.py"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("mpi_opt", ["mpi4py", "numpy", "sqlalchemy", "tensorflow", "keras", "torch"]),
        ("mpi_opt.study", ["mpi4py", "tensorflow", "keras", "torch", "skopt", "deap"]),
        ("mpi_opt.cli_results", ["mpi4py", "tensorflow", "keras", "torch", "sqlalchemy", "skopt"]),
        ("mpi_opt.strategies", ["mpi4py", "skopt", "deap", "sklearn", "sqlalchemy"]),
        ("mpi_opt.rank", ["tensorflow", "keras", "torch", "sqlalchemy", "skopt", "deap", "sklearn", "typer", "rich"]),
        ("mpi_learn", ["mpi4py", "numpy", "tensorflow", "keras", "torch"]),
    ],
)
def test_importing_stays_light(module, absent):
    code = f"import sys, {module}; print(sorted(set({absent!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
