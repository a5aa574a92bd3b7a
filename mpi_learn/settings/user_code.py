"""Functions and classes of users that a YAML file names: ``file.py:name`` or ``package.module:name``."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from mpi_learn.errors import ConfigurationError, UserError
from mpi_learn.settings.paths import expanded, is_file
from mpi_learn.settings.suggestions import nearest_file, suggestion
from mpi_learn.settings.user_files import fixed_code, spec_of_file
from mpi_learn.settings.user_traceback import cure_at_line

WITH_SCOPE = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


@dataclass(frozen=True)
class FunctionSignature:
    """The parameters of a function.

    Attributes:
        names: Parameters that can be passed by name, in order; for a class those of ``__init__`` without ``self``.
            Positional-only parameters are left out.
        accepts_any: Whether it has ``**kwargs``, or its parameters are unknown.
        required: Parameters without a default, positional-only ones included, which cannot be passed.
        is_decorated: Whether a decorator may supply arguments, or accept others.
    """

    names: tuple[str, ...]
    accepts_any: bool
    required: tuple[str, ...] = ()
    is_decorated: bool = False

    def check(self, arguments: dict[str, Any] | list[str], specification: str) -> None:
        """Raises ConfigurationError if one of `arguments` is not a parameter, or if a required one is missing."""
        if self.is_decorated:
            return
        unknown = [] if self.accepts_any else [name for name in arguments if name not in self.names]
        if unknown:
            raise ConfigurationError(
                f"{specification} has no parameter {unknown[0]}", cure=suggestion(unknown[0], self.names, "it has")
            )
        missing = [name for name in self.required if name not in arguments]
        if missing:
            is_positional = not self.accepts_any and missing[0] not in self.names
            raise ConfigurationError(
                f"{specification} needs a value for {missing[0]}" + (", by position only" if is_positional else ""),
                cure="remove the `/` after it in the function"
                if is_positional
                else f"add `{missing[0]}`, or give the argument a default",
            )


def is_function(specification: str) -> bool:
    """Whether `specification` has the form ``file.py:name`` or ``package.module:name``."""
    source, colon, name = specification.rpartition(":")
    return bool(colon and source and name.isidentifier())


def absolute_specification(specification: str, directory: Path) -> str:
    """`specification` with a relative path of a file resolved against `directory`. Other names do not change."""
    source, colon, name = specification.rpartition(":") if is_function(specification) else (specification, "", "")
    if source.endswith((".py", ".keras", ".json")) and "://" not in source:
        return f"{directory / expanded(source)}{colon}{name}"
    return specification


def load_function(specification: str, directory: Path | None = None) -> Callable[..., Any]:
    """The function or class that `specification` names.

    A file is run once per process, and again after it has changed. While code is fixed (see `fixed_code`), a file of
    this code is run from memory.

    Args:
        directory: The directory of relative paths; default: the current directory.

    Raises:
        ConfigurationError: The file, module or name does not exist, or running the file failed.
    """
    source, name = _source_and_name(specification)
    if source.endswith(".py"):
        module = _file_module(_existing_file(source, directory))
    else:
        module = _named_module(source, directory)
    found: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise _no_such_function(source, name, names)
    return found


def signature_of(specification: str, directory: Path | None = None) -> FunctionSignature:
    """The parameters of a function, read from its source. Nothing is imported or run.

    Raises:
        ConfigurationError: The file, module or name does not exist, or the file is not Python.
    """
    source, name = _source_and_name(specification)
    path = _existing_file(source, directory) if source.endswith(".py") else _module_path(source, directory)
    if path.suffix != ".py":  # a compiled module
        return FunctionSignature((), True)
    try:
        # decoded by Python, which knows byte order marks and declared encodings
        content = fixed_code().files.get(str(path)) or path.read_bytes()
        tree = ast.parse(content, filename=str(path))
    except SyntaxError as error:
        cure = f"correct line {error.lineno}" if error.lineno else "save the file as text in UTF-8"
        raise ConfigurationError(f"the file is not valid Python: {error}", where=str(path), cure=cure) from error
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound = _bound_names(tree)
    if name in found and bound[name] == 1:
        return _signature(found[name])
    if bound.keys() & {name, "*", "__getattr__"}:
        return FunctionSignature((), True)
    raise _no_such_function(source, name, [key for key in found if not key.startswith("_")])


def _source_and_name(specification: str) -> tuple[str, str]:
    if not is_function(specification):
        raise ConfigurationError(
            f"expected a function, found {specification!r}", cure="write file.py:function or package.module:function"
        )
    source, _, name = specification.rpartition(":")
    return source, name


def _existing_file(source: str, directory: Path | None) -> Path:
    path = (directory or Path.cwd()) / expanded(source)
    if (real := fixed_code().real_path(path)) is not None:
        return Path(real)
    if not is_file(path):
        near, files = nearest_file(path, "*.py"), sorted(file.name for file in path.parent.glob("*.py"))
        cure = f"did you mean {near}?" if near else suggestion(path.name, files, f"Python files in {path.parent}")
        raise ConfigurationError("there is no such file", where=str(path), cure=cure)
    return path.resolve()


@contextmanager
def errors_of_user_code(
    doing: str, where: str, kind: type[UserError] = ConfigurationError, cure: str = ""
) -> Iterator[None]:
    """Converts every exception of user code inside the block into an error of `kind`; a `UserError` passes unchanged.

    Args:
        doing: The action for the message, for example ``"importing it"``.
        cure: The cure; if empty, it names the user's line that raised the exception.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and not cure:
            cure = 'put the code of a script under `if __name__ == "__main__":`'
        cure = cure or cure_at_line("correct it", error)
        raise kind(f"{doing} raised {type(error).__name__}: {error}", where=where, cure=cure) from error


def _file_module(path: Path) -> ModuleType:
    name = f"_user_{path.stem}_{zlib.crc32(str(path).encode()):x}"
    content = fixed_code().files.get(str(path))
    if content is None:
        content = path.read_bytes()
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__content__", None) == content:
        return loaded
    spec = spec_of_file(name, path) or importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    vars(module)["__content__"] = content
    sys.modules[name] = module  # dataclasses need it there while the file runs
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # so that it can import the files beside it
    try:
        with errors_of_user_code("running this file", str(path)):
            spec.loader.exec_module(module)
    except BaseException:  # also KeyboardInterrupt: the next call would find a file of which only a part has run
        sys.modules.pop(name, None)
        raise
    return module


def _named_module(source: str, directory: Path | None) -> ModuleType:
    _module_path(source, directory)
    here = str(directory or Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    with errors_of_user_code("importing it", source):
        return importlib.import_module(source)


def _module_path(source: str, directory: Path | None) -> Path:
    """The file of a module. Neither the module nor the packages that contain it are imported."""
    here = directory or Path.cwd()
    spec = _module_spec(source, str(here))
    if spec is None or not spec.origin:
        near = nearest_file(here / f"{source}.py", "*.py")
        cure = f"did you mean {near}:…?" if near else "is it installed in this environment?"
        raise ConfigurationError(f"there is no module {source}", where=source, cure=cure)
    return Path(spec.origin)


def _module_spec(source: str, here: str) -> ModuleSpec | None:
    first, *rest = source.split(".")
    try:
        spec = importlib.util.find_spec(first)  # imports nothing for a name without a dot
    except (ImportError, ValueError):
        spec = None
    spec = spec or PathFinder.find_spec(first, [here])
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec


def _signature(node: ast.FunctionDef | ast.ClassDef) -> FunctionSignature:
    if isinstance(node, ast.ClassDef):
        inits = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        return _signature_of_arguments(inits[0].args, skip=1) if inits else FunctionSignature((), True)
    found = _signature_of_arguments(node.args)
    return replace(found, is_decorated=bool(node.decorator_list))


def _signature_of_arguments(arguments: ast.arguments, skip: int = 0) -> FunctionSignature:
    positional = [*arguments.posonlyargs, *arguments.args]
    n_required, first = len(positional) - len(arguments.defaults), max(skip, len(arguments.posonlyargs))
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    required = positional[skip:n_required] + [parameter for parameter, default in by_name if default is None]
    names = positional[first:] + arguments.kwonlyargs
    return FunctionSignature(_names(names), arguments.kwarg is not None, _names(required))


def _names(parameters: list[ast.arg]) -> tuple[str, ...]:
    return tuple(parameter.arg for parameter in parameters)


def _bound_names(tree: ast.Module) -> Counter[str]:
    """How often a module defines, assigns or imports each of its names; more than once as in ``f = jit(f)``."""
    names: Counter[str] = Counter()
    for node in ast.walk(tree):  # in any scope
        match node:
            case ast.Global(names=declared):
                names.update(declared)
            case ast.NamedExpr(target=ast.Name(id=name)):
                names[name] += 1
    for node in _nodes_of_scope(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] += 1
            case ast.Name(id=name, ctx=ast.Store()):
                names[name] += 1
            case ast.alias(name=name, asname=asname):
                names[asname or name.partition(".")[0]] += 1
    return names


def _nodes_of_scope(outer: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside `outer`, without those that have a scope of their own: in functions, classes, comprehensions."""
    for node in ast.iter_child_nodes(outer):
        yield node
        if not isinstance(node, WITH_SCOPE):
            yield from _nodes_of_scope(node)


def _no_such_function(source: str, name: str, known: list[str]) -> ConfigurationError:
    return ConfigurationError(f"there is no function {name}", where=source, cure=suggestion(name, known, "it has"))
