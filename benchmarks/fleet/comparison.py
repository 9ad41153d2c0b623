"""Whether two servers give the same values for an expression at one moment, and which differences are by design."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError

from benchmarks.fleet.expressions import Expression
from benchmarks.server_process import ServerProcess

from tachoscope_core import yaml_text

TOLERANCE = 1e-6
NOTHING = 1e-9
"""What is smaller may be the rounding of a difference."""
DIFFERENCES = Path(__file__).parent / "differences.yaml"
Values = Mapping[frozenset[tuple[str, str]], float]


@dataclass(frozen=True, slots=True)
class Allowed:
    """A difference that is by design.

    Attributes:
        expressions: a pattern that is found in the expressions that it is allowed for. tolerance: relative, of values.
        series: whether one of the servers may have series that the other does not have. ties: whether values are compared in
            their order where the series differ: of equal ones, either may be chosen.
    """

    reason: str
    expressions: str
    tolerance: float = TOLERANCE
    series: bool = False
    ties: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """What two servers answer differently; apart: relative, at most; reason: why it is by design, empty if nothing says so."""

    expression: Expression
    what: str
    apart: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """How many expressions had an answer on both sides, and which answers differ."""

    asked: int
    answered: int
    differences: Sequence[Difference]

    @property
    def unexplained(self) -> list[Difference]:
        return [one for one in self.differences if not one.reason]


def allowed() -> list[Allowed]:
    return [Allowed(**one) for one in yaml_text.load(DIFFERENCES.read_text())]


def compare(first: ServerProcess, second: ServerProcess, expressions: Sequence[Expression], at: float) -> Compared:
    """Ask both servers for all expressions at a moment in Unix seconds."""
    designed, answered = allowed(), 0
    differences = []
    for one in expressions:
        ours, theirs = _asked(first, one.text, at), _asked(second, one.text, at)
        if isinstance(ours, str) or isinstance(theirs, str):
            differences.append(Difference(one, f"refused: {ours if isinstance(ours, str) else theirs}"))
            continue
        answered += bool(ours)
        if found := _difference(one, ours, theirs, designed):
            differences.append(found)
    return Compared(len(expressions), answered, differences)


def _asked(server: ServerProcess, query: str, at: float) -> Values | str:
    try:
        data = server.ask("query", query=query, time=f"{at:.3f}")
    except HTTPError as error:
        return error.read().decode(errors="replace")[:300]
    rows = data["result"]
    if data["resultType"] == "scalar":
        return {frozenset(): float(rows[1])}
    named = {frozenset(row["metric"].items()): float(row["value"][1]) for row in rows}
    # VictoriaMetrics keeps the metric's name where a function does not change what is meant, as in avg_over_time.
    unnamed = {frozenset(pair for pair in key if pair[0] != "__name__"): value for key, value in named.items()}
    return unnamed if len(unnamed) == len(named) else named


def _difference(one: Expression, ours: Values, theirs: Values, designed: Sequence[Allowed]) -> Difference | None:
    only = [*_named("first", ours.keys() - theirs.keys()), *_named("second", theirs.keys() - ours.keys())]
    apart = [(_apart(ours[key], theirs[key]), _words(key)) for key in ours.keys() & theirs.keys()]
    furthest = max(apart, default=(0.0, ""))
    if not only and furthest[0] <= TOLERANCE:
        return None
    what = f"{furthest[0]:.2g} apart at most, {furthest[1]}" if furthest[0] > TOLERANCE else ""
    what = "; ".join([*([what] if what else []), *only[:2], *([f"and {len(only) - 2} more"] if len(only) > 2 else [])])
    fits = (each.reason for each in designed if re.search(each.expressions, one.text) and _allows(each, ours, theirs))
    return Difference(one, what, furthest[0], next(fits, ""))


def _allows(allowed: Allowed, ours: Values, theirs: Values) -> bool:
    if ours.keys() != theirs.keys() and allowed.ties and len(ours) == len(theirs):
        pairs = list(zip(sorted(ours.values()), sorted(theirs.values()), strict=True))
    elif ours.keys() != theirs.keys() and not allowed.series:
        return False
    else:
        pairs = [(ours[key], theirs[key]) for key in ours.keys() & theirs.keys()]
    return all(_apart(*pair) <= allowed.tolerance for pair in pairs)


def _named(side: str, keys: set[frozenset[tuple[str, str]]]) -> Iterator[str]:
    yield from (f"only the {side} has {_words(key)}" for key in sorted(keys, key=_words))


def _words(key: frozenset[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(key)) + "}"


def _apart(first: float, second: float) -> float:
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    if not (math.isfinite(first) and math.isfinite(second)):
        return math.inf
    return abs(first - second) / max(abs(first), abs(second), NOTHING)
