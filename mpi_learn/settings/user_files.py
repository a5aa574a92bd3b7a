"""The Python files of a user: which ones a function needs, and that they do not change while a search runs.

A module is *local* if it is neither part of Python nor installed in ``site-packages``: a file beside the user's file,
in the current directory, on ``PYTHONPATH``, or in a project that is installed in editable mode. Imports are found in
the syntax trees of the files; nothing is imported or run.

The files of a search are fixed: otherwise a file that is edited meanwhile would change later trials, and ranks that
read it at different times, or from a network file system that is not up to date, would train different models.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class SourceLoader(importlib.abc.SourceLoader):
    """Runs a Python file from memory.

    Compiled files of an earlier run are not used, because they are identified by the file's time of change.

    Attributes:
        content: The content of the file.
    """

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content = path, content

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        """The content of the module's own file from memory, and of any other file from the disk."""
        return self.content if path == self.path else Path(str(path)).read_bytes()

    def exec_module(self, module: ModuleType) -> None:
        """Runs the file."""
        self.show_in_tracebacks()
        super().exec_module(module)

    def show_in_tracebacks(self) -> None:
        """Makes tracebacks show the lines in memory, also after the file has changed."""
        with suppress(SyntaxError, UnicodeDecodeError):
            source = importlib.util.decode_source(self.content)
            # without a time of change, linecache does not look at the file
            linecache.cache[self.path] = (len(source), None, source.splitlines(keepends=True), self.path)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the local modules of the fixed code."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = fixed_code().modules.get(fullname)
        if module is None:
            return None
        folders = list(module.folders) or None
        if module.file:
            return _spec(fullname, module.file, folders)
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = folders
        return spec


_FINDER = _Finder()
_code: SourceCode | None = None
"""The fixed code of this process. Imports concern the whole process, therefore it is not a value that is passed on."""


def fixed_code() -> SourceCode:
    """The code that is fixed at present; an empty one if none is."""
    return _code or SourceCode()


def is_fixed() -> bool:
    """Whether code is fixed at present."""
    return _code is not None


def fix(code: SourceCode | None) -> None:
    """Fixes `code`; None means that files are read again when they are loaded.

    If one of its files has another content than when it was last run from memory, all modules that were run from memory
    are run again on their next import: they may contain objects of the one that has changed.
    """
    global _code
    for path in fixed_code().files:  # tracebacks would show lines of the former content
        linecache.cache.pop(path, None)
    _code = code
    files = fixed_code().files
    # a list, because threads of the user may import meanwhile
    loaded = {name: loader for name, one in list(sys.modules.items()) if (loader := _loader(one)) is not None}
    if any(files.get(loader.path, loader.content) != loader.content for loader in loaded.values()):
        for name in loaded:
            del sys.modules[name]
        loaded = {}
    for loader in loaded.values():
        if loader.path in files:
            loader.show_in_tracebacks()
    if code is not None and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    elif code is None and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


@contextmanager
def fixed(code: SourceCode) -> Iterator[None]:
    """Fixes `code` inside the block; then the code that was fixed before."""
    before = _code
    fix(code)
    try:
        yield
    finally:
        fix(before)


def spec_of_file(name: str, path: Path) -> ModuleSpec | None:
    """The specification of a module with this name that runs a file of the fixed code; None for another file."""
    real = fixed_code().real_path(path)
    return None if real is None else _spec(name, real, None)


def _spec(name: str, path: str, folders: list[str] | None) -> ModuleSpec | None:
    loader = SourceLoader(path, fixed_code().files[path])
    return importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=folders)


def _loader(module: ModuleType | None) -> SourceLoader | None:
    loader = vars(module).get("__loader__") if isinstance(module, ModuleType) else None
    return loader if isinstance(loader, SourceLoader) else None


OWN_PACKAGES = ("mpi_learn", "mpi_opt")
"""Their version identifies them."""

INSTALLED_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Module:
    """A local module.

    Attributes:
        file: The real path of its file; empty for a folder without ``__init__.py``.
        folders: The folders of its submodules; empty unless it is a package.
    """

    file: str
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceCode:
    """Python files of a user and their content at the time at which they were read.

    Attributes:
        files: Real path -> content.
        names: Absolute path by which a file was found -> its real path. They differ for symbolic links.
        modules: Name -> local module that one of the files imports.
        installed: The installed packages that the files import, by the name of the module.
        compiled: The files of local modules that are not Python, which are not read.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, Module] = field(default_factory=dict)
    installed: frozenset[str] = frozenset()
    compiled: frozenset[str] = frozenset()

    def real_path(self, path: Path) -> str | None:
        """The real path of a file that is part of the code; None for any other file."""
        name = _absolute(path)
        return name if name in self.files else self.names.get(name)

    def digests(self) -> dict[str, str]:
        """Real path -> SHA-256 of the content."""
        return {path: hashlib.sha256(content).hexdigest() for path, content in sorted(self.files.items())}

    def joined(self, other: SourceCode) -> SourceCode:
        """This code, and the files of `other` that it does not have."""
        return SourceCode(
            {**other.files, **self.files},
            {**other.names, **self.names},
            {**other.modules, **self.modules},
            self.installed | other.installed,
            self.compiled | other.compiled,
        )


def read_source_code(
    specifications: Iterable[str], directory: Path, files: Iterable[Path] = (), known: SourceCode | None = None
) -> SourceCode:
    """Reads the Python files of functions and the local modules that they import.

    Args:
        specifications: ``file.py:name`` or ``package.module:name``. Those that do not exist are left out: an
            attempt to load them raises the error.
        directory: The directory of relative paths.
        files: Further Python files, such as the script that runs.
        known: Code whose files are not read again.
    """
    importlib.invalidate_caches()  # otherwise a module that was written in the last second may not be found
    reading = _Reading(directory, known or SourceCode())
    for path in files:
        reading.add_file(path)
    for specification in specifications:
        reading.add_function(specification)
    return SourceCode(
        reading.files, reading.names, reading.modules, frozenset(reading.installed), frozenset(reading.compiled)
    )


def names_of_functions(content: Any) -> Iterator[str]:
    """Yields every text in `content`, nested lists and mappings, that has the form ``file.py:name``."""
    if isinstance(content, Mapping):
        for value in content.values():
            yield from names_of_functions(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from names_of_functions(value)
    elif isinstance(content, str) and _parts(content) is not None:
        yield content


def is_local(path: str) -> bool:
    """Whether a file belongs neither to Python nor to an installed package."""
    parts = Path(path).parts
    return not any(folder in parts for folder in INSTALLED_FOLDERS) and not any(
        path.startswith(folder) for folder in _folders_of_python()
    )


@cache
def _folders_of_python() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[key]) + os.sep for key in ("stdlib", "platstdlib"))


def _parts(specification: str) -> tuple[str, str] | None:
    """File or module, and name, of a specification; None if it is another text."""
    source, colon, name = specification.rpartition(":")
    if not colon or not name.isidentifier() or "\n" in source:
        return None
    is_module = all(part.isidentifier() for part in source.split("."))
    return (source, name) if source.endswith(".py") or is_module else None


class _Reading:
    """Follows imports from file to file, and reads each file once."""

    def __init__(self, directory: Path, known: SourceCode) -> None:
        self.directory, self._known = directory, known
        self.files: dict[str, bytes] = {}
        self.names: dict[str, str] = {}
        self.modules: dict[str, Module] = {}
        self.installed: set[str] = set()
        self.compiled: set[str] = set()
        self._seen: set[str] = set()

    def add_function(self, specification: str) -> None:
        found = _parts(specification)
        if found is None:
            return
        if found[0].endswith(".py"):
            with suppress(RuntimeError):  # no such home directory
                self.add_file(self.directory / Path(found[0]).expanduser())
        else:
            self._add_dotted(found[0], self.directory)

    def add_file(self, path: Path, package: str = "") -> None:
        """Reads a file, if it exists, and follows its imports; `package` is that of relative imports."""
        name, real = _absolute(path), os.path.realpath(path)
        if name != real:
            self.names[name] = real
        if real in self.files or self._known.real_path(path) is not None:
            return
        try:
            content = Path(real).read_bytes()
            self.files[real] = content
            tree = ast.parse(content)
        except (OSError, SyntaxError, ValueError, RecursionError):  # loading it raises the error
            return
        folder = Path(real).parent
        for node in ast.walk(tree):
            self._follow(node, folder, package)

    def _follow(self, node: ast.AST, folder: Path, package: str) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    self._add_dotted(alias.name, folder)
            case ast.ImportFrom():
                source = _absolute_name(node, package)
                self._add_dotted(source, folder)
                for alias in node.names:
                    if source in self.modules and self.modules[source].folders:
                        self._add_module(f"{source}.{alias.name}", folder)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                self._add_dotted(name, folder)
            case ast.Constant(value=str(text)) if len(text) < 1000 and text.rpartition(":")[0].endswith(".py"):
                self.add_function(text)  # such as the model in a dict for `mpi_learn.train`

    def _add_dotted(self, name: str, folder: Path) -> None:
        """Adds a module and the packages that contain it, whose ``__init__.py`` run first."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            self._add_module(".".join(parts[:end]), folder)

    def _add_module(self, name: str, folder: Path) -> None:
        if not name or name in self._seen:
            return
        self._seen.add(name)
        parent, _, _ = name.rpartition(".")
        if parent and parent not in self.modules:
            return  # installed, or part of Python
        folders_of_parent = self.modules[parent].folders if parent else ()
        spec = PathFinder.find_spec(name, [*folders_of_parent]) if parent else self._top_level(name, folder)
        if spec is None:
            self._seen.discard(name)  # it may be beside another file
            return
        folders = tuple(map(os.path.realpath, spec.submodule_search_locations or ()))
        place = spec.origin if spec.has_location and spec.origin else next(iter(folders), "")
        if not place or not is_local(os.path.realpath(place)):
            self.installed.add(name)
        elif not spec.has_location:
            self.modules[name] = Module("", folders)
        elif place.endswith(".py"):
            self.modules[name] = Module(os.path.realpath(place), folders)
            self.add_file(Path(place), name if folders else parent)
        else:
            self.compiled.add(os.path.realpath(place))

    def _top_level(self, name: str, folder: Path) -> ModuleSpec | None:
        if name in sys.stdlib_module_names or name in OWN_PACKAGES or not name.isidentifier():
            return None
        spec = None
        with suppress(ImportError, ValueError, AttributeError):  # also: a module without a `__spec__`
            spec = importlib.util.find_spec(name)
        return spec or PathFinder.find_spec(name, [str(folder), str(self.directory)])


def _absolute(path: Path) -> str:
    """The absolute path, without following symbolic links."""
    return os.path.abspath(path)  # noqa: PTH100 - `Path.absolute` keeps ``..``


def _absolute_name(node: ast.ImportFrom, package: str) -> str:
    """The module of ``from … import …``; empty if a relative import leaves the package."""
    if not node.level:
        return node.module or ""
    with suppress(ImportError):
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package or None)
    return ""
