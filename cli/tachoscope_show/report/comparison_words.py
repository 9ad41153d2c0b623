"""A run against its baseline, in words and rows of text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tachoscope_core.report.comparison import Comparison, Difference
from tachoscope_show.report.trend_words import ranks_text, signed_percent
from tachoscope_show.text.units import seconds

_LEAST_SHARE = 0.01
_SHOWN = 80
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{8,}")
_NOT_WHETHER = "the noise of the two runs is too large to say whether it changed"
_NOT_HOW_MUCH = "beyond the noise, which is too large to say whether by 10 % or more"
TITLES = ("", "baseline", "now", "difference", "95 % interval")


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A state on both sides as text; `certain`: whether the difference is beyond the noise."""

    name: str
    baseline: str
    now: str
    difference: str
    interval: str
    certain: bool


def verdict(one: Comparison) -> str:
    """Return what came of it, as a sentence."""
    step = f"the step takes {seconds(one.step.seconds)} against {seconds(one.step.baseline_seconds)}, {signed_percent(one.share)}"
    said = {
        "slower": f"slower: {step}, beyond the noise",
        "faster": f"faster: {step}, beyond the noise",
        "alike": f"alike: {step}",
        "unclear": f"unclear: {step}; " + (_NOT_HOW_MUCH if one.step.beyond_noise else _NOT_WHETHER),
        "not_comparable": f"not comparable: {step}, but a step is not the same work",
    }[one.verdict]
    return f"{said}; {ranks_text(one.ranks)}" if one.verdict in {"slower", "faster"} and one.ranks is not None else said


def title(one: Comparison) -> str:
    """Return name, steps and source of what it is compared with."""
    return f"Compared with {one.baseline} ({one.baseline_steps:,} steps, {one.source})"


def rows(one: Comparison) -> list[ComparisonRow]:
    """Return the step, and the states whose difference is worth a hundredth of it."""
    least = _LEAST_SHARE * one.step.baseline_seconds
    states = [row for row in one.states if abs(row.difference) >= least]
    return [_row(row) for row in (one.step, *states)]


def _row(one: Difference) -> ComparisonRow:
    low, high = one.interval
    return ComparisonRow(
        one.name,
        seconds(one.baseline_seconds),
        seconds(one.seconds),
        signed(one.difference),
        f"{signed(low)} to {signed(high)}",
        one.beyond_noise,
    )


def signed(value: float) -> str:
    """Return seconds with their sign."""
    return ("+" if value > 0 else "-" if value < 0 else "") + seconds(abs(value))


def made_of(one: Comparison) -> list[tuple[str, str, str]]:
    """Return what the runs were made of differently: name, baseline, now."""
    return [(row.name.replace("_", " "), _short(row.baseline), _short(row.now)) for row in one.made_of]


def _short(value: str) -> str:
    value = _DIGEST.sub(r"\1", value) or "-"
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN - 1]}…"
