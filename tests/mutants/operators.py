"""Kinds of wrong changes that fit many places: a comparison swapped, a condition negated, a statement removed …

Each operator is a function of a node of the syntax tree that yields replacements for it. `sites` applies all of them to
a module. Annotations, docstrings, imports, assertions, constants of the module and code for type checkers are left
alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = tuple[str, ast.AST, str]
"""The kind of a change, the node that is replaced, and the text in its place."""

COMPARISONS = {
    ast.Lt: ("<=", ">"), ast.LtE: ("<", ">"), ast.Gt: (">=", "<"), ast.GtE: (">", "<"), ast.Eq: ("!=",),
    ast.NotEq: ("==", "<"), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
ARITHMETIC = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "*", ast.Pow: "*",
    ast.BitOr: "&", ast.BitAnd: "|", ast.MatMult: "*",
}  # fmt: skip
OTHER_FUNCTION = {"min": "max", "max": "min", "any": "all", "all": "any", "isend": "send", "send": "isend"}
OTHER_FUNCTION |= {"append": "extend", "union": "intersection", "issubset": "issuperset", "floor": "ceil"}
ONLY_FIRST = {
    "sorted",
    "list",
    "tuple",
    "dict",
    "set",
    "abs",
    "reversed",
    "float",
    "int",
    "str",
    "bool",
    "copy",
    "round",
}
"""Functions whose call may be replaced by its first argument."""
SYMMETRIC = {"suppress", "min", "max", "map", "isinstance"}
"""Functions whose two arguments cannot be exchanged, or make no difference."""


@dataclass(frozen=True)
class Site:
    """A place in a source file where an operator applies.

    Attributes:
        kind: Of the change.
        line: First line of the statement, from 1.
        function: Qualified name of the innermost function; empty in a module or class.
        start: First character of the replaced text.
        end: Character after it.
        text: What replaces it.
    """

    kind: str
    line: int
    function: str
    start: int
    end: int
    text: str

    def applied_to(self, source: str) -> str:
        """Returns the changed source."""
        return source[: self.start] + self.text + source[self.end :]


def sites(source: str, has_default: Callable[[str, str], bool] = lambda callee, keyword: True) -> list[Site]:
    """Lists all changes of a module that give another valid program.

    Args:
        source: Of the module.
        has_default: Whether a call of a function works without this keyword argument, as far as is known.
    """
    tree = ast.parse(source)
    offsets = _Offsets(source)
    found = []
    constants = _constants(tree)
    for node, statement, function, bound in _visited(tree):
        changes = [change for operator in OPERATORS for change in operator(node)]
        changes += [*removal(node, bound), *argument_dropped(node, has_default), *other_constant(node, constants)]
        for kind, replaced, text in changes:
            found.append(Site(kind, statement.lineno, function, *offsets.of(replaced), text))
    return found


def _visited(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.stmt, str, dict[str, int]]]:
    """All nodes that may be changed, each with its statement, its function and how often that binds each name."""

    def walk(
        node: ast.AST, statement: ast.stmt, scope: tuple[str, ...], function: str, bound: dict[str, int]
    ) -> Iterator[tuple[ast.AST, ast.stmt, str, dict[str, int]]]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or _is_left_alone(child):
                    continue
                inner = (child if isinstance(child, ast.stmt) else statement, scope, function, bound)
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    name = ".".join((*scope, child.name))
                    inner = (child, (*scope, child.name, "<locals>"), name, _bindings(child))
                elif isinstance(child, ast.ClassDef):
                    inner = (child, (*scope, child.name), function, {})
                yield child, inner[0], inner[2], inner[3]
                if not isinstance(child, ast.JoinedStr):  # the positions in it are wrong before Python 3.12
                    yield from walk(child, *inner)

    yield from walk(tree, tree.body[0], (), "", {})


def _is_left_alone(node: ast.AST) -> bool:
    """Imports, texts that stand alone, assertions, constants of the module, and code for type checkers."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: an assertion
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign) and node.col_offset == 0 and _is_constant(node):
        return True
    callee = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return callee in ("cast", "TypeVar", "NewType", "Field") or callee.endswith("overload")


def _is_constant(statement: ast.Assign) -> bool:
    """Whether a statement of a module defines constants, which are choices, names of types or ``__all__``."""
    names = [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    made = ast.unparse(statement.value.func) if isinstance(statement.value, ast.Call) else ""
    is_type = isinstance(statement.value, ast.BinOp | ast.Subscript) and all(name[:1].isupper() for name in names)
    is_type = is_type and not any(isinstance(node, ast.Call) for node in ast.walk(statement.value))  # a validator
    is_type = is_type or made in ("TypeVar", "ParamSpec", "NewType")
    return is_type or all(name.isupper() or name[:2] == "__" for name in names)


def _constants(tree: ast.Module) -> list[str]:
    """The names in capitals that a module imports or defines."""
    imported = [one.asname or one.name for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names]
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    defined = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return sorted({name for name in (*imported, *defined) if name.isupper() and len(name) > 1})


def _bindings(function: ast.AST) -> dict[str, int]:
    count: dict[str, int] = {}
    for node in ast.walk(function):
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""
        name = node.arg if isinstance(node, ast.arg) else name
        if name:
            count[name] = count.get(name, 0) + 1
    return count


def _is_bound_elsewhere(statement: ast.Assign, bound: dict[str, int]) -> bool:
    """Whether the program still runs without an assignment: all its names have another value before or after."""
    names = [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    stored = [target for target in statement.targets if isinstance(target, ast.Attribute | ast.Subscript)]
    return bool(stored) or all(bound.get(name, 0) > 1 for name in names)


class _Offsets:
    """Positions of nodes in the text of a module; the syntax tree counts bytes of UTF-8 in a line."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)


def _text(node: ast.AST) -> str:
    """The source of an expression, in parentheses where its place could need them."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"


def comparison(node: ast.AST) -> Iterator[Change]:
    """``a < b`` becomes ``a <= b`` or ``a > b``."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in COMPARISONS[type(node.ops[0])]:
            yield "comparison", node, f"({ast.unparse(node.left)} {other} {ast.unparse(node.comparators[0])})"


def boolean(node: ast.AST) -> Iterator[Change]:
    """``a and b`` becomes ``a or b``, ``a`` or ``b``; ``not a`` becomes ``a``."""
    if isinstance(node, ast.BoolOp):
        other = " or " if isinstance(node.op, ast.And) else " and "
        yield "and, or", node, f"({other.join(map(_text, node.values))})"
        for value in node.values if len(node.values) == 2 else ():
            yield "condition dropped", node, _text(value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not dropped", node, _text(node.operand)


def condition(node: ast.AST) -> Iterator[Change]:
    """A condition is negated or always true, a choice always one of its values, a filter dropped."""
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield "condition negated", node.test, f"(not {_text(node.test)})"
    if isinstance(node, ast.If | ast.While) and ast.unparse(node.test) != "True":
        yield "condition false", node.test, "False"
    if isinstance(node, ast.If):
        yield "condition true", node.test, "True"
    if isinstance(node, ast.IfExp):
        yield "choice dropped", node, _text(node.body)
        yield "choice dropped", node, _text(node.orelse)
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield "filter dropped", test, "True"


def number(node: ast.AST) -> Iterator[Change]:
    """A number is larger by one, or twice as large; True becomes False; a word becomes another."""
    if not isinstance(node, ast.Constant) or node.value is None or node.value is Ellipsis:
        return
    if isinstance(node.value, bool):
        yield "constant", node, str(not node.value)
    elif isinstance(node.value, int):
        yield "constant", node, str(node.value + 1)
    elif isinstance(node.value, float):
        yield "constant", node, repr(2 * node.value or 1.0)


def arithmetic(node: ast.AST) -> Iterator[Change]:
    """Another operation, or a sign dropped."""
    if isinstance(node, ast.BinOp) and not isinstance(node.left, ast.Constant | ast.JoinedStr | ast.List):
        other = ARITHMETIC.get(type(node.op), "+")
        yield "arithmetic", node, f"({_text(node.left)} {other} {_text(node.right)})"
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        text = f"{ast.unparse(node.target)} {ARITHMETIC[type(node.op)]}= {ast.unparse(node.value)}"
        yield "arithmetic", node, text
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign dropped", node, _text(node.operand)


def removal(node: ast.AST, bound: dict[str, int]) -> Iterator[Change]:
    """A statement is removed, unless a name would be undefined."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "call removed", node, "pass"
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Assign) and _is_bound_elsewhere(node, bound)):
        yield "assignment removed", node, "pass"
    if isinstance(node, ast.Raise | ast.Delete):
        yield "statement removed", node, "pass"


def flow(node: ast.AST) -> Iterator[Change]:
    """Control continues elsewhere."""
    if isinstance(node, ast.Break):
        yield "break, continue", node, "continue"
    if isinstance(node, ast.Continue):
        yield "break, continue", node, "break"
    if isinstance(node, ast.Raise):
        yield "raise, return", node, "return"
    if isinstance(node, ast.Return):
        yield "return value", node, "pass" if node.value is None else "return None"
    if isinstance(node, ast.ExceptHandler) and not isinstance(node.body[0], ast.Raise):
        yield "exception not handled", node.body[0], "raise"
    if isinstance(node, ast.Try) and node.finalbody:
        yield "finally dropped", node.finalbody[0], "pass"
    if isinstance(node, ast.With) and all(item.optional_vars is None for item in node.items):
        first, last = node.items[0].context_expr, node.items[-1].context_expr
        if first is last:
            yield "context dropped", first, "__import__('contextlib').nullcontext()"


def call(node: ast.AST) -> Iterator[Change]:
    """Arguments are exchanged; a call is replaced by its argument, or by that of another function."""
    if not isinstance(node, ast.Call):
        return
    is_pair = len(node.args) == 2 and not node.keywords and all(isinstance(one, ast.Name) for one in node.args)
    if is_pair and ast.unparse(node.func) not in SYMMETRIC:
        swapped = f"{ast.unparse(node.func)}({ast.unparse(node.args[1])}, {ast.unparse(node.args[0])})"
        yield "arguments exchanged", node, swapped
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name in ONLY_FIRST and node.args and not isinstance(node.args[0], ast.Starred | ast.GeneratorExp):
        yield "call dropped", node, _text(node.args[0])
    elif name in OTHER_FUNCTION:
        other = ast.unparse(node.func).removesuffix(name) + OTHER_FUNCTION[name]
        yield "other function", node.func, other


def argument_dropped(node: ast.AST, has_default: Callable[[str, str], bool]) -> Iterator[Change]:
    """A keyword argument is dropped, unless its function needs it."""
    if not isinstance(node, ast.Call):
        return
    callee = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    for keyword in node.keywords:
        if keyword.arg not in (None, "strict") and has_default(callee, keyword.arg):
            others = [one for one in node.keywords if one is not keyword]
            yield "argument dropped", node, ast.unparse(ast.Call(node.func, node.args, others))


def other_constant(node: ast.AST, constants: list[str]) -> Iterator[Change]:
    """A constant is replaced by another one of the module."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in constants and len(constants) > 1:
        yield "other constant", node, constants[(constants.index(node.id) + 1) % len(constants)]


def value(node: ast.AST) -> Iterator[Change]:
    """An argument or assigned value is None; a part of a sequence is all of it; a message lacks a value."""
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                others = [one for one in node.values if one is not part]
                yield "value not said", node, ast.unparse(ast.JoinedStr(others))
    if isinstance(node, ast.Call):
        for one in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(one, ast.Call):
                yield "None for a value", one, "None"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call | ast.BinOp):
        yield "None for a value", node.value, "None"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        yield "slice dropped", node, f"{_text(node.value)}[:]"


OPERATORS = (comparison, boolean, condition, number, arithmetic, flow, call, value)
