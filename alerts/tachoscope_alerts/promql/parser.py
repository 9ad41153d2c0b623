"""PromQL taken apart: which series an expression reads, over which window, and how they are put together.

The grammar is Prometheus's (https://prometheus.io/docs/prometheus/latest/querying/basics/); functions are not known by name. If
an expression is valid is promtool's to say: this reads what promtool accepts, and refuses what it cannot read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from tachoscope_alerts.promql.tokens import Token, error, seconds, tokens, unquoted
from tachoscope_core.errors import TachoscopeError

_T = TypeVar("_T")
MatchOperator = Literal["=", "!=", "=~", "!~"]
AGGREGATIONS = frozenset(
    ["sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile", "limitk"]
)
SET_OPERATORS = frozenset(["and", "or", "unless"])
_POWERS = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4}
_POWERS |= {"*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6}
_KEYWORDS = SET_OPERATORS | {"by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "atan2"}


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

    text: str
    is_text: bool = False

    @property
    def number(self) -> float:
        """The number; not a number of a text."""
        if self.is_text:
            return math.nan
        return float(int(self.text, 16)) if self.text.lower().startswith("0x") else float(self.text)


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
        TachoscopeError: it cannot be read, with the place.
    """
    parser = _Parser(text)
    try:
        found = parser.expression()
    except RecursionError:
        raise parser.error("it is nested too deeply") from None
    if parser.peek.kind != "end":
        raise parser.error(f"{parser.peek.text!r} stands where nothing more is expected")
    return found


def read(expression: Expression, seconds: float = 0.0) -> Iterator[tuple[Series, float]]:
    """Yield the series that an expression reads, each with the length of its window in seconds, subqueries around it included."""
    match expression:
        case Series():
            yield expression, seconds
        case Window():
            yield from read(expression.operand, seconds + expression.seconds)
        case Call() | Aggregation():
            for argument in expression.arguments:
                yield from read(argument, seconds)
        case Binary():
            yield from read(expression.left, seconds)
            yield from read(expression.right, seconds)


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all in it, the outer ones first."""
    yield expression
    match expression:
        case Window():
            yield from walk(expression.operand)
        case Call() | Aggregation():
            for argument in expression.arguments:
                yield from walk(argument)
        case Binary():
            yield from walk(expression.left)
            yield from walk(expression.right)


# --- grammar ------------------------------------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(tokens(text))
        self.at = 0

    @property
    def peek(self) -> Token:
        return self.tokens[self.at]

    def error(self, problem: str) -> TachoscopeError:
        return error(self.text, self.peek.place, problem)

    def next(self) -> Token:
        token = self.peek
        self.at += token.kind != "end"
        return token

    def take(self, *texts: str) -> str:
        """Go past one of these, in lower case, if it stands here; return it, else nothing."""
        token = self.peek
        if token.kind in {"operator", "word"} and token.text.lower() in texts:
            return self.next().text.lower()
        return ""

    def expect(self, text: str) -> None:
        if not self.take(text):
            found = repr(self.peek.text) if self.peek.text else "the end"
            raise self.error(f"{text!r} is expected, not {found}")

    def expression(self, least: int = 1) -> Expression:
        left = self.signed()
        while (power := _POWERS.get(self.peek.text.lower(), 0)) >= least and self.peek.kind in {"operator", "word"}:
            operator = self.next().text.lower()
            self.take("bool")
            word = self.take("on", "ignoring")
            matching = self.labels() if word else None
            many = self.take("group_left", "group_right").removeprefix("group_")
            include = self.labels() if many and self.peek.text == "(" else ()
            right = self.expression(power if operator == "^" else power + 1)
            side = cast(Literal["", "left", "right"], many)
            left = Binary(operator, left, right, matching, ignoring=word == "ignoring", many=side, include=include)
        return left

    def signed(self) -> Expression:
        if self.take("+", "-"):
            return self.expression(_POWERS["^"])
        found = self.primary()
        while True:
            if self.take("["):
                found = self.window(found)
            elif self.take("offset"):
                self.take("-")
                self.duration()
            elif self.take("@"):
                self.moment()
            else:
                return found

    def window(self, operand: Expression) -> Expression:
        seconds = self.duration()
        if self.take(":"):
            if self.peek.kind == "duration":
                self.next()
        elif not isinstance(operand, Series):
            raise self.error("only a selector has a range: write [range:resolution] for a subquery")
        self.expect("]")
        return Window(operand, seconds)

    def duration(self) -> float:
        if self.peek.kind != "duration":
            raise self.error(f"a length of time is expected, not {self.peek.text!r}")
        return seconds(self.next().text)

    def moment(self) -> None:
        if self.take("start", "end"):
            self.expect("(")
            self.expect(")")
            return
        self.take("-")
        if self.next().kind != "number":
            raise self.error("after @ stands a time, start() or end()")

    def primary(self) -> Expression:
        token = self.peek
        if token.kind == "string":
            return Constant(unquoted(self.next().text), is_text=True)
        if token.kind == "number":
            return Constant(self.next().text)
        if self.take("("):
            inner = self.expression()
            self.expect(")")
            return inner
        if token.text == "{":
            return Series("", self.matchers())
        if token.kind != "word" or token.text.lower() in _KEYWORDS:
            raise self.error(f"a value is expected, not {token.text!r}" if token.text else "it ends where a value is expected")
        return self.named(self.next().text)

    def named(self, name: str) -> Expression:
        if name.lower() in AGGREGATIONS and self.peek.text.lower() in {"(", "by", "without"}:
            return self.aggregation(name.lower())
        if self.peek.text == "(":
            return Call(name, self.arguments())
        if name.lower() in {"inf", "nan"}:
            return Constant(name)
        return Series(name, self.matchers() if self.peek.text == "{" else ())

    def aggregation(self, name: str) -> Expression:
        word = self.take("by", "without")
        labels = self.labels() if word else None
        arguments = self.arguments()
        if not word and (word := self.take("by", "without")):
            labels = self.labels()
        if not arguments:
            raise self.error(f"{name} needs an argument")
        return Aggregation(name, arguments, labels, without=word == "without")

    def arguments(self) -> tuple[Expression, ...]:
        return self.listed("(", ")", self.expression)

    def labels(self) -> tuple[str, ...]:
        return self.listed("(", ")", self.label)

    def matchers(self) -> tuple[Matcher, ...]:
        return self.listed("{", "}", self.matcher)

    def listed(self, begin: str, end: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        self.expect(begin)
        found = []
        while not self.take(end):
            found.append(item())
            if not self.take(","):
                self.expect(end)
                break
        return tuple(found)

    def label(self) -> str:
        token = self.next()
        if token.kind != "word" or ":" in token.text:
            raise self.error(f"a label is expected, not {token.text!r}")
        return token.text

    def matcher(self) -> Matcher:
        label, operator, value = self.label(), self.next().text, self.next()
        if operator not in {"=", "!=", "=~", "!~"} or value.kind != "string":
            raise self.error(f"after the label {label} stand =, !=, =~ or !~ and a text in quotes")
        return Matcher(label, cast(MatchOperator, operator), unquoted(value.text))
