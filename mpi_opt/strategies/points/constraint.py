"""Constraints between hyperparameters: arithmetic and comparisons, read from text.

The text is parsed and every node must be listed below, so that a constraint can compute but cannot do anything else.
"""

from __future__ import annotations

import ast
from typing import Any, final

from mpi_opt.core.space import Parameters, Space
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.checks import unknown_hyperparameter

LARGEST_EXPONENT = 64

ALLOWED = (
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.In, ast.NotIn),
    *(ast.UnaryOp, ast.Not, ast.USub, ast.UAdd),
    *(ast.BoolOp, ast.And, ast.Or),
    *(ast.List, ast.Tuple, ast.Load),
)
"""The nodes that may occur, besides names of hyperparameters, constants, powers and calls."""


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > LARGEST_EXPONENT:
        raise OverflowError(f"exponent above {LARGEST_EXPONENT}")
    return base**exponent


GLOBALS = {"abs()": abs, "min()": min, "max()": max, "round()": round, "**": _power, "__builtins__": {}}
"""The functions, by names that no hyperparameter can have, because these contain no punctuation."""


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
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError as error:
            raise self._invalid(f"not a valid expression: {error.msg}") from None
        tree.body = self._checked(tree.body, space)
        self._code = compile(ast.fix_missing_locations(tree), text, "eval")

    def __repr__(self) -> str:
        return f"Constraint({self.text!r})"

    def is_met(self, parameters: Parameters) -> bool:
        """Whether `parameters` satisfy the expression. An expression with an inactive hyperparameter is satisfied."""
        try:
            return bool(eval(self._code, GLOBALS, parameters))
        except NameError:
            return True
        except (ArithmeticError, TypeError):  # a division by zero, or a comparison of text with a number
            return False

    def _checked(self, node: Any, space: Space) -> Any:
        """`node` with its functions and powers replaced by calls of those in `GLOBALS`.

        Raises:
            ConfigurationError: A node is not allowed, or names an unknown hyperparameter.
        """
        match node:
            case ast.Name(id=name):
                if name not in space:
                    raise unknown_hyperparameter(name, space, self._where)
                return node
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if f"{name}()" in GLOBALS:
                return _call(f"{name}()", [self._checked(argument, space) for argument in arguments])
            case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
                return _call("**", [self._checked(base, space), self._checked(exponent, space)])
        if not isinstance(node, ALLOWED):
            raise self._invalid(f"{ast.unparse(node) or type(node).__name__!r} is not allowed in a constraint")
        for name, value in ast.iter_fields(node):
            is_list = isinstance(value, list)
            setattr(node, name, [self._checked(v, space) for v in value] if is_list else self._checked(value, space))
        return node

    def _invalid(self, problem: str) -> ConfigurationError:
        cure = "write an expression such as units * layers < 4096"
        return ConfigurationError(problem, where=self._where, cure=cure)


def _call(function: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), arguments, [])
