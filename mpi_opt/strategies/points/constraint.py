"""Constraints between hyperparameters: arithmetic and comparisons, read from text.

The text is never executed as Python. It is parsed, every node must be in the tables below, and the tree is evaluated
for each point. No expression can use all memory or run for hours: powers of integers are limited, and texts and lists
cannot be repeated or formatted.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from numbers import Number
from typing import Any, final

from mpi_opt.core.space import Parameters, Space
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.checks import unknown_hyperparameter

MAX_INTEGER_SIZE = 10_000
"""Limit for integers: the number of bits of a power, estimated within a factor of two, and the number of digits that
`round` removes. An expression that exceeds it violates the constraint. Powers of real numbers are not limited."""


TEXTS = re.compile(r"'[^']*'|\"[^\"]*\"")
"""Texts in quotes within an expression."""


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and (base.bit_length() - 1) * exponent > MAX_INTEGER_SIZE:
        raise OverflowError(f"a power of more than {MAX_INTEGER_SIZE} bits")
    return base**exponent


def _rounded(value: Any, digits: Any = None) -> Any:
    if digits is not None and digits < -MAX_INTEGER_SIZE:
        raise OverflowError(f"more than {MAX_INTEGER_SIZE} digits to round off")
    return round(value, digits)


def _of_numbers(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`operation`, which must not repeat or format a text or a list."""

    def applied(left: Any, right: Any) -> Any:
        if not (isinstance(left, Number) and isinstance(right, Number)):
            raise TypeError(f"{operation.__name__} needs numbers")
        return operation(left, right)

    return applied


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _of_numbers(operator.mul),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _of_numbers(operator.mod),
    ast.Pow: _power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda value, options: value in options,
    ast.NotIn: lambda value, options: value not in options,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max, "round": _rounded}


@final
class Constraint:
    """One expression over the hyperparameters, e.g. ``units * layers < 4096``.

    Args:
        text: An expression of numbers, strings, names of hyperparameters, ``+ - * / // % **``, comparisons,
            ``and or not in``, and the functions abs, min, max and round.
        space: The search space, which defines the names.

    Raises:
        ConfigurationError: `text` is not such an expression or names an unknown hyperparameter.
    """

    def __init__(self, text: str, space: Space) -> None:
        self.text, self._where = text, f"search.options.constraints: {text!r}"
        self._check_keywords(space)
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise self._invalid(f"not a valid expression: {error.msg}") from None
        self._check(self._tree, space)
        self._check_condition(self._tree)

    def __repr__(self) -> str:
        return f"Constraint({self.text!r})"

    def is_met(self, parameters: Parameters) -> bool:
        """Whether `parameters` satisfy the expression; True if its evaluation needs an inactive hyperparameter.

        As in Python, the right-hand side of ``and`` and ``or`` is evaluated only if the left-hand side does not decide.
        """
        try:
            return bool(_value(self._tree, parameters))
        except KeyError:
            return True
        except (ArithmeticError, TypeError, ValueError):  # a division by zero, or a comparison of text with a number
            return False

    def _check_keywords(self, space: Space) -> None:
        """Verifies that the expression names no hyperparameter that is a word of Python: it would not be read as one.

        ``lambda < 3`` is not an expression, and ``None < 3`` compares a constant.
        """
        for name in filter(keyword.iskeyword, space):
            if re.search(rf"\b{name}\b", TEXTS.sub("", self.text)):
                raise ConfigurationError(
                    f"the hyperparameter {name} has the name of a keyword of Python, which a constraint cannot contain",
                    where=self._where,
                    cure=f"rename it in the space, for example to {name}_",
                )

    def _check(self, node: ast.expr, space: Space) -> None:
        if isinstance(node, ast.Name):
            if node.id not in space:
                raise unknown_hyperparameter(node.id, space, self._where)
        elif not _is_known(node):
            raise self._invalid(f"{ast.unparse(node)!r} is not allowed in a constraint")
        elif isinstance(node, ast.Call) and not _has_right_arguments(node):
            raise self._invalid(f"{ast.unparse(node)!r} has a wrong number of arguments")
        for part in _parts(node):
            self._check(part, space)

    def _check_condition(self, node: ast.expr) -> None:
        """Verifies that `node` is not a list or a constant, which would be the same at every point."""
        if isinstance(node, ast.BoolOp):
            for part in node.values:
                self._check_condition(part)
        elif isinstance(node, ast.Tuple | ast.List):
            cure = "write one expression per constraint, or connect them with `and`"
            raise ConfigurationError(f"{ast.unparse(node)!r} is a list", where=self._where, cure=cure)
        elif isinstance(node, ast.Constant):
            raise self._invalid(f"{ast.unparse(node)!r} does not depend on a hyperparameter")

    def _invalid(self, problem: str) -> ConfigurationError:
        cure = "write an expression such as units * layers < 4096"
        return ConfigurationError(problem, where=self._where, cure=cure)


def _is_known(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return isinstance(node.value, bool | int | float | str | None)
        case ast.BinOp():
            return type(node.op) in _BINARY
        case ast.UnaryOp():
            return type(node.op) in _UNARY
        case ast.Compare():
            return all(type(op) in _COMPARISONS for op in node.ops)
        case ast.Call():
            return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    return isinstance(node, ast.BoolOp | ast.List | ast.Tuple)


def _has_right_arguments(node: ast.Call) -> bool:
    """Whether one of `_FUNCTIONS` is called with as many arguments as it takes; min and max also take one list."""
    assert isinstance(node.func, ast.Name)
    n = len(node.args)
    if node.func.id in ("min", "max"):
        return n >= 2 or (n == 1 and isinstance(node.args[0], ast.List | ast.Tuple))
    return n == 1 or (n == 2 and node.func.id == "round")


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return node.args
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _value(node: ast.expr, parameters: Parameters) -> Any:
    match node:
        case ast.Name(id=name):
            return parameters[name]
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, parameters), _value(right, parameters))
        case ast.UnaryOp(op=sign, operand=operand):
            return _UNARY[type(sign)](_value(operand, parameters))
        case ast.BoolOp() | ast.Compare():
            return _holds(node, parameters)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*_values(arguments, parameters))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return list(_values(elements, parameters))
    raise TypeError(f"{type(node).__name__} was not rejected by the check")


def _values(nodes: Iterable[ast.expr], parameters: Parameters) -> Iterator[Any]:
    """Yields the value of each node. Nodes are evaluated on demand, so that ``and`` and ``or`` can stop early."""
    return (_value(node, parameters) for node in nodes)


def _holds(node: ast.BoolOp | ast.Compare, parameters: Parameters) -> bool:
    if isinstance(node, ast.BoolOp):
        values = _values(node.values, parameters)
        return all(values) if isinstance(node.op, ast.And) else any(values)
    sides = list(_values((node.left, *node.comparators), parameters))
    pairs = zip(sides, node.ops, sides[1:], strict=False)
    return all(_COMPARISONS[type(op)](left, right) for left, op, right in pairs)
