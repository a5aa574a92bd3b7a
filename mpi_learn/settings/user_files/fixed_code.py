"""Fixes the code of a user while a search or a training runs: files are run from memory, and are not read again.

Without it, a file that is edited meanwhile would change later trials. Ranks that read it at different times, or from a
network file system that is not up to date, would train different models.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from mpi_learn.settings.user_files.source_code import SourceCode


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
