"""The words of a PromQL expression: https://github.com/prometheus/prometheus/blob/main/promql/parser/lex.go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tachoscope_core.errors import TachoscopeError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_TOKENS = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)
    |(?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![a-zA-Z0-9_]))
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<word>[a-zA-Z_][a-zA-Z0-9_:]*)
    |(?P<operator>=~|!~|==|!=|<=|>=|[-+*/%^=<>(){}\[\],:@])""",
    re.VERBOSE | re.DOTALL,
)
_MOST_SHOWN = 120


class Token(NamedTuple):
    """A word: `kind` is string, duration, number, word, operator or end; `place` its first character, from 0."""

    kind: str
    text: str
    place: int


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of an expression, comments and space left out, and then its end.

    Raises:
        TachoscopeError: something in it is none.
    """
    place = 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise error(text, place, f"{text[place]!r} is nothing that an expression may hold")
        if match.lastgroup != "space":
            yield Token(str(match.lastgroup), match[0], place)
        place = match.end()
    yield Token("end", "", place)


def error(text: str, place: int, problem: str) -> TachoscopeError:
    """Return an error that names the expression and the place in it."""
    shown = " ".join(text.split())
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    return TachoscopeError(f"the expression {shown!r}, character {place + 1}: {problem}", fix="promtool check rules says more")


def unquoted(text: str) -> str:
    """Return what stands between quotes, escapes resolved."""
    if text.startswith("`"):
        return text[1:-1]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)


def seconds(text: str) -> float:
    """Return a length of time such as `1h30m`, in seconds."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))
