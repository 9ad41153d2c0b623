"""PromQL taken apart: which series an expression reads, over which window, and how they are put together.

The parser is promql-parser, which checks types and numbers of arguments as Prometheus does. Its tree is made one of plain records
here, which compare by value, and in which neither signs and parentheses nor offsets stand: none changes a series or its labels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import promql_parser as library

from tachoscope_core.errors import TachoscopeError

MatchOperator = Literal["=", "!=", "=~", "!~"]
SET_OPERATORS = frozenset(["and", "or", "unless"])
_MATCH_OPERATORS: dict[str, MatchOperator] = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
_MOST_SHOWN = 120
_NESTS = re.compile(r"[-+*/%^(\[<>]|[=!]=|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
_MOST_NESTED = 2_000
"""Operators, parentheses and brackets. The library ends the process where some 10,000 of them are nested."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label; `value` is what stands between the quotes, escapes resolved."""

    label: str
    operator: MatchOperator
    value: str


@dataclass(frozen=True, slots=True)
class Series:
    """Series that are read. `metric` is empty where only matchers are given."""

    metric: str
    matchers: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """The samples of a range, or the evaluations of a subquery, over the last `seconds`."""

    operand: Expression
    seconds: float


@dataclass(frozen=True, slots=True)
class Constant:
    """A number or a text."""

    value: float | str

    @property
    def number(self) -> float:
        """The number; NaN for a text."""
        return math.nan if isinstance(self.value, str) else self.value

    @property
    def text(self) -> str:
        """The text; a number as it is written."""
        return self.value if isinstance(self.value, str) else f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Many series made few; `labels` are kept, or dropped if `without`; None: neither is said."""

    function: str
    arguments: tuple[Expression, ...]
    labels: tuple[str, ...] | None = None
    without: bool = False


@dataclass(frozen=True, slots=True)
class Binary:
    """Two expressions; `matching`: the labels of `on`, or of `ignoring`. `many`: the side that may have several for one."""

    operator: str
    left: Expression
    right: Expression
    matching: tuple[str, ...] | None = None
    ignoring: bool = False
    many: Literal["", "left", "right"] = ""
    include: tuple[str, ...] = ()


Expression = Series | Window | Constant | Call | Aggregation | Binary


def parse(text: str) -> Expression:
    """Take an expression apart.

    Raises:
        TachoscopeError: it is not valid, with the reason.
    """
    if len(_NESTS.findall(text)) > _MOST_NESTED:
        raise _error(text, "it is nested too deeply")
    try:
        return _expression(library.parse(text))
    except RecursionError:
        raise _error(text, "it is nested too deeply") from None
    except ValueError as error:
        raise _error(text, str(error)) from None


def read(expression: Expression, seconds: float = 0.0) -> Iterator[tuple[Series, float]]:
    """Yield the series that an expression reads, each with the length of its window in seconds, subqueries around it included."""
    if isinstance(expression, Series):
        yield expression, seconds
        return
    own = expression.seconds if isinstance(expression, Window) else 0.0
    for part in _parts(expression):
        yield from read(part, seconds + own)


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all in it, the outer ones first."""
    yield expression
    for part in _parts(expression):
        yield from walk(part)


def _parts(expression: Expression) -> tuple[Expression, ...]:
    match expression:
        case Window():
            return (expression.operand,)
        case Call() | Aggregation():
            return expression.arguments
        case Binary():
            return expression.left, expression.right
        case _:
            return ()


def _error(text: str, problem: str) -> TachoscopeError:
    shown = " ".join(text.split())
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    return TachoscopeError(f"the expression {shown!r} is not valid: {problem}", fix="promtool check rules names the place")


# --- from the library's tree ----------------------------------------------------------------------------------------------------


def _expression(node: library.Expr) -> Expression:
    match node:
        case library.NumberLiteral() | library.StringLiteral():
            return Constant(node.val)
        case library.UnaryExpr() | library.ParenExpr():
            return _expression(node.expr)
        case library.VectorSelector():
            return _series(node)
        case library.MatrixSelector():
            return Window(_series(node.vector_selector), node.range.total_seconds())
        case library.SubqueryExpr():
            assert node.range is not None, "a subquery has a range"
            return Window(_expression(node.expr), node.range.total_seconds())
        case library.Call():
            return Call(node.func.name, tuple(map(_expression, node.args)))
        case library.AggregateExpr():
            return _aggregation(node)
        case library.BinaryExpr():
            return _binary(node)
        case _:
            raise ValueError(f"{type(node).__name__} is not supported")


def _series(node: library.VectorSelector) -> Series:
    if node.matchers.or_matchers:
        raise ValueError("`or` between matchers is not PromQL")
    matchers = tuple(
        Matcher(one.name, _MATCH_OPERATORS[str(one.op).removeprefix("MatchOp.")], one.value) for one in node.matchers.matchers
    )
    return Series(node.name or "", matchers)


def _aggregation(node: library.AggregateExpr) -> Aggregation:
    arguments = tuple(_expression(one) for one in (node.param, node.expr) if one is not None)
    if (said := node.modifier) is None:
        return Aggregation(str(node.op), arguments)
    return Aggregation(str(node.op), arguments, tuple(said.labels), without=said.type == library.AggModifierType.Without)


def _binary(node: library.BinaryExpr) -> Binary:
    sides = str(node.op), _expression(node.lhs), _expression(node.rhs)
    if (said := node.modifier) is None:
        return Binary(*sides)
    many = {"ManyToOne": "left", "OneToMany": "right"}.get(str(said.card).rpartition(".")[2], "")
    return Binary(
        *sides,
        matching=None if said.matching is None else tuple(said.matching.labels),
        ignoring=said.matching is not None and said.matching.type == library.LabelModifierType.Exclude,
        many=cast(Literal["", "left", "right"], many),
        include=tuple(said.group_labels or ()),
    )
