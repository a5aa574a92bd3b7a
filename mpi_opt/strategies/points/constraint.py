"""Constraints between hyperparameters: arithmetic and comparisons, read from text.

The text is parsed, and only the nodes listed below are allowed: no attributes, no subscripts, no functions but four.
Python compiles the tree, after calls of bounded functions have replaced some of its nodes. No expression can use all
memory or run for hours: powers of integers are limited, and texts and lists cannot be repeated or formatted.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any, final

from mpi_opt.core.search_space.space import Parameters, Space
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


_NODES = (ast.Constant, ast.Name, ast.List, ast.Tuple, ast.Call, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare)
_OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd),
    *(ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.And, ast.Or, ast.Not),
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max, "round": _rounded}
_BOUNDED = {ast.Pow: _power, ast.Mult: _of_numbers(operator.mul), ast.Mod: _of_numbers(operator.mod)}
# In brackets, a name cannot be that of a hyperparameter, which may be called max.
_GLOBALS = (
    {"__builtins__": {}, "<all>": all}
    | {f"<{name}>": function for name, function in _FUNCTIONS.items()}
    | {f"<{kind.__name__}>": function for kind, function in _BOUNDED.items()}
)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(f"<{name}>", ast.Load()), list(arguments), [])


class _Bound(ast.NodeTransformer):
    """Replaces operators by bounded functions, and tuples by lists, which are equal to lists."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        kind = type(node.op)
        return _call(kind.__name__, node.left, node.right) if kind in _BOUNDED else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        return _call(node.func.id, *(self.visit(argument) for argument in node.args))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Evaluates all sides of ``a < b < c``: whether it needs an inactive hyperparameter depends on no value."""
        self.generic_visit(node)
        lefts = (node.left, *node.comparators)
        pairs = zip(lefts, node.ops, node.comparators, strict=False)
        return _call("all", ast.List([ast.Compare(left, [op], [right]) for left, op, right in pairs], ast.Load()))

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        self.generic_visit(node)
        return ast.List(node.elts, ast.Load())


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
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            raise self._invalid(f"not a valid expression: {error.msg}") from None
        self._check(tree.body, space)
        self._check_condition(tree.body)
        self._code = compile(ast.fix_missing_locations(_Bound().visit(tree)), "constraint", "eval")

    def __repr__(self) -> str:
        return f"Constraint({self.text!r})"

    def is_met(self, parameters: Parameters) -> bool:
        """Whether `parameters` satisfy the expression; True if its evaluation needs an inactive hyperparameter.

        As in Python, the right-hand side of ``and`` and ``or`` is evaluated only if the left-hand side does not decide.
        """
        try:
            return bool(eval(self._code, _GLOBALS, parameters))  # of nodes that `_check` knows
        except NameError:
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


def constraints_of(strategy: str, options: Mapping[str, Any], space: Space) -> list[Constraint]:
    """The constraints in the valid `options` of a search; none of a strategy of the user, which has its own options."""
    return [] if ":" in strategy else [Constraint(text, space) for text in options.get("constraints", ())]


def _is_known(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return isinstance(node.value, bool | int | float | str | None)
        case ast.Call():
            return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    operators = (part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr | ast.expr_context))
    return isinstance(node, _NODES) and all(isinstance(one, _OPERATORS) for one in operators)


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
