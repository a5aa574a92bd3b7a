"""Where a function of Python is defined, and what identifies its code.

A file identifies a function: after an edit it is still the same function. In an interactive session, such as a
notebook, only the code does: nothing tells an edited function from another one of the same name.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mpi_learn.settings.user_files import is_local

Constant = bool | int | float | complex | str | bytes | None


@dataclass(frozen=True)
class Definition:
    """The definition of an objective.

    Attributes:
        name: The qualified name of the function, or of the class of a callable object. The same in each run, unlike
            its ``repr``. A partial has the name of its function.
        file: The absolute path of its file; empty in an interactive session.
        digest: Identifies its code; in an interactive session with the functions and constants of the session that it
            uses.
        bound: The plain values of a partial, of a closure and of default arguments: name -> value as text. They can
            tell two objectives with the same code apart.
    """

    name: str
    file: str = ""
    digest: str = ""
    bound: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, objective: Callable[..., Any]) -> Definition:
        """The definition of a function, a partial or a callable object."""
        bound: dict[str, str] = {}
        while isinstance(objective, partial):
            named = {str(place): value for place, value in enumerate(objective.args)} | objective.keywords
            bound = _plain(named) | bound
            objective = objective.func
        objective = inspect.unwrap(objective)
        named_object = objective if hasattr(objective, "__qualname__") else type(objective)
        functions = list(_functions_of(objective))
        for function in functions:
            bound = _plain(inspect.getclosurevars(function).nonlocals) | _defaults(function) | bound
        module = sys.modules.get(named_object.__module__)
        file = str(getattr(module, "__file__", None) or "")
        file = os.path.realpath(file) if Path(file).is_file() else ""
        parts = [_canonical(function.__code__) for function in functions]
        if not file:
            parts += _used_in_session(functions, module)
        return cls(named_object.__qualname__, file, _digest(parts), bound)

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.bound.items())
        return f"{self.name}{f' ({values})' if values else ''} of {self.file or 'an interactive session'}"

    def is_in_file(self, digest: str) -> bool:
        """Whether the file has a function with this digest."""
        try:
            whole = compile(Path(self.file).read_bytes(), self.file, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            return False
        return any(_digest([_canonical(code)]) == digest for code in _all_codes(whole))


def calling_script() -> Path | None:
    """The script that this process runs; None in an interactive session, or if an installed program runs."""
    name = getattr(sys.modules.get("__main__"), "__file__", None)
    path = os.path.realpath(name) if name else ""
    is_program = not is_local(path) or Path(path).parent == Path(sys.executable).parent
    return None if is_program or not Path(path).is_file() else Path(path)


def _functions_of(objective: Any) -> Iterator[FunctionType]:
    """The Python functions of an objective: itself, or the methods of its class."""
    objective = getattr(objective, "__func__", objective)
    if isinstance(objective, FunctionType):
        yield objective
        return
    owner = objective if isinstance(objective, type) else type(objective)
    yield from (value for _, value in sorted(vars(owner).items()) if isinstance(value, FunctionType))


def _used_in_session(functions: list[FunctionType], module: ModuleType | None) -> list[Any]:
    """The code of other functions and classes of the session, and the constants, that functions use."""
    found: list[Any] = []
    waiting, known = list(functions), set(functions)
    while waiting:
        function = waiting.pop()
        for code in _all_codes(function.__code__):
            # a name that the function itself assigns is an output: its value changes with each call
            assigned = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_GLOBAL"}
            for name in sorted(set(code.co_names) - assigned):
                value = function.__globals__.get(name)
                if isinstance(value, Constant | tuple) and name in function.__globals__:
                    found.append((name, repr(value)))
                elif isinstance(value, FunctionType | type) and module is not None and _is_of(value, module):
                    new = [one for one in _functions_of(value) if one not in known]
                    found += [(name, _canonical(one.__code__)) for one in new]
                    known.update(new)
                    waiting += new
    return sorted(found, key=repr)


def _is_of(value: FunctionType | type, module: ModuleType) -> bool:
    return value.__module__ == module.__name__


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    """`code`, and that of all functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_codes(constant)


def _canonical(code: CodeType) -> tuple[Any, ...]:
    """What `code` does, without line numbers and names of files."""
    constants = tuple(_canonical(one) if isinstance(one, CodeType) else _shown(one) for one in code.co_consts)
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_name, code.co_argcount, code.co_kwonlyargcount, code.co_flags, names, code.co_code, constants


def _shown(constant: object) -> str:
    """A constant as text: the order in a frozenset differs between processes."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _defaults(function: FunctionType) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()
    return _plain({one.name: one.default for one in parameters if one.default is not one.empty})


def _plain(values: Mapping[str, Any]) -> dict[str, str]:
    """The values that are the same in each run of a program, as text."""
    return {name: repr(value) for name, value in values.items() if isinstance(value, Constant)}
