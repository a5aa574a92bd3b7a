"""Draws wrong changes at random places of the packages; the same seed draws the same places of the same source.

A file is drawn by its number of lines, then one of its statements, then a kind of change that fits the statement. Kinds
that most tests notice at once, or that change only a sentence, are drawn less often.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.mutants.mutant import LISTS, ROOT
from tests.mutants.operators import Site, sites

PACKAGES = ("mpi_learn", "mpi_opt")
ARGUED = LISTS / "argued" / "drawn.yaml"
Key = tuple[str, str, str, str]
RARELY = {"None for a value": 0.25, "return value": 0.25, "value not said": 0.25}
"""Weights of the kinds of changes; 1 for the others."""


@dataclass(frozen=True)
class Drawn:
    """A wrong change at a place that was drawn.

    Attributes:
        file: The source file, relative to the project.
        site: The place and the change.
        was: The changed line or lines, before.
        becomes: The same, afterwards.
        stages: Arguments of pytest: the tests that should notice the change, and those that run if they do not.
        limit_s: How long these tests may take.
        argued: Why no test needs to notice it; empty if one must.
    """

    file: str
    site: Site
    was: str
    becomes: str
    stages: tuple[tuple[str, ...], ...] = ()
    limit_s: float = 0.0
    argued: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.site.line}" + (f" {self.site.function}" if self.site.function else "")
        return f"{place}: {self.site.kind}: {self.was} → {self.becomes}"

    @property
    def key(self) -> Key:
        """Identifies the change as long as its line is the same."""
        return self.file, self.site.function, self.was, self.becomes

    def applied_to(self, source: str) -> str:
        """Returns the changed source."""
        return self.site.applied_to(source)


def draw(n: int, seed: int, root: Path = ROOT, only: Iterable[str] = ()) -> list[Drawn]:
    """Draws different changes, each of which gives another valid program.

    Args:
        n: How many.
        seed: Of the draw.
        root: The project.
        only: Words that the path of a file must contain.
    """
    generator = random.Random(seed)
    sources = {file: (root / file).read_text(encoding="utf-8") for file in source_files(root)}
    sources = {file: text for file, text in sources.items() if text.strip() and all(word in file for word in only)}
    weights = [text.count("\n") for text in sources.values()]
    has_default = defaults(sources.values())
    found: dict[tuple[str, Site], Drawn] = {}
    places: dict[str, dict[int, list[Site]]] = {}
    for _ in range(100 * n):  # a file may have no place, and a place may be drawn twice
        if len(found) == n:
            break
        file = generator.choices(list(sources), weights)[0]
        if file not in places:
            places[file] = by_statement(sites(sources[file], has_default))
        site = _one_of(places[file], generator)
        if site is not None and (file, site) not in found and _is_valid(site, sources[file]):
            found[file, site] = Drawn(file, site, *_lines(site, sources[file]))
    return list(found.values())


def source_files(root: Path) -> list[str]:
    """Lists the modules of the packages, relative to the project."""
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [str(path.relative_to(root)) for path in paths]


def by_statement(found: list[Site]) -> dict[int, list[Site]]:
    """Groups places by the line where their statement begins."""
    groups = defaultdict(list)
    for site in found:
        groups[site.line].append(site)
    return dict(groups)


def _one_of(places: dict[int, list[Site]], generator: random.Random) -> Site | None:
    if not places:
        return None
    here = places[generator.choice(list(places))]
    kinds = sorted({site.kind for site in here})
    kind = generator.choices(kinds, [RARELY.get(kind, 1.0) for kind in kinds])[0]
    return generator.choice([site for site in here if site.kind == kind])


def _is_valid(site: Site, source: str) -> bool:
    """Whether the changed source is another program."""
    try:
        return ast.dump(ast.parse(site.applied_to(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _lines(site: Site, source: str) -> tuple[str, str]:
    """The lines of a change, before and after, each without line breaks."""
    begin = source.rfind("\n", 0, site.start) + 1
    end = source.find("\n", site.end)
    was, becomes = source[begin:end], source[begin : site.start] + site.text + source[site.end : end]
    return " ".join(was.split()), " ".join(becomes.split())


def defaults(sources: Iterable[str]) -> Callable[[str, str], bool]:
    """Returns a function of a callee and a keyword: whether no function or class of that name needs the keyword."""
    needed: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                needed[node.name] |= _without_default(node)
            elif isinstance(node, ast.ClassDef):
                constructors = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and one.value is None]
                needed[node.name] |= {one.target.id for one in fields if isinstance(one.target, ast.Name)}
                for one in constructors:
                    needed[node.name] |= _without_default(one)
    return lambda callee, keyword: keyword not in needed[callee]


def _without_default(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    names = positional[: len(positional) - len(arguments.defaults)]
    names += [one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return {one.arg for one in names}


def read_argued(path: Path = ARGUED) -> dict[Key, str]:
    """Reads why no test needs to notice some changes, by `Drawn.key`."""
    sections = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) or {} if path.exists() else {}
    entries = [(file, entry) for file, section in sections.items() for entry in section]
    return {(file, one.get("in", ""), one["was"], one["becomes"]): one["argued"] for file, one in entries}


def stale_arguments(argued: Iterable[Key], root: Path = ROOT) -> list[str]:
    """Lists the entries of `ARGUED` whose line no longer exists."""
    found = []
    for file, function, was, _ in argued:
        path = root / file
        text = " ".join(path.read_text(encoding="utf-8").split()) if path.exists() else ""
        if was not in text:
            found.append(f"tests/mutants/argued/drawn.yaml: {file}: {function}: no such line: {was}")
    return found
