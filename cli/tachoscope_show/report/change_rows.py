"""The differences from a baseline as rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tachoscope_core.report.report import Change
from tachoscope_show.text.units import seconds

_MATCHED = {"baseline_only": "baseline only", "other_only": "now only"}
_RENAMED = ("normalised", "base_name", "operator")
_SHOWN = 40
_LENGTH = 50
_BEGINNING = 16


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A difference in words: `name` is short, `full_name` is not; `was`: its name in the baseline, where it was renamed."""

    kind: str
    name: str
    full_name: str
    was: str
    baseline: str
    now: str
    difference: str
    calls: str


def rows(changes: Sequence[Change]) -> list[ChangeRow]:
    """Return the rows of what changed; none, if nothing did."""
    if not any(change.seconds != change.baseline_seconds for change in changes):
        return []
    short = shortened(name for change in changes for name in (change.name, change.baseline_name))
    return [_row(change, short) for change in changes[:_SHOWN]]


def _row(change: Change, short: dict[str, str]) -> ChangeRow:
    how = f" ({_MATCHED[change.matched]})" if change.matched in _MATCHED else ""
    gone = change.matched == "baseline_only"
    renamed = change.matched in _RENAMED and change.name != change.baseline_name
    counted = change.kind in {"operator", "kernel"} and (change.baseline_count or change.count)
    difference = change.seconds - change.baseline_seconds
    return ChangeRow(
        kind=change.kind,
        name=short[change.name] + _alike_words(change.baseline_names if gone else change.names) + how,
        full_name=change.name,
        was=short[change.baseline_name] + _alike_words(change.baseline_names) if renamed else "",
        baseline=seconds(change.baseline_seconds),
        now=seconds(change.seconds),
        difference=("+" if difference > 0 else "-" if difference < 0 else "") + seconds(abs(difference)),
        calls=f"{change.baseline_count:.3g} → {change.count:.3g}" if counted else "",
    )


def _alike_words(names: int) -> str:
    return f" and {names - 1} alike" if names > 1 else ""


def shortened(names: Iterable[str]) -> dict[str, str]:
    """Return each name in at most 50 characters; those that begin alike for longer than that, from where they differ."""
    ordered = sorted(set(names))
    found = {}
    for place, name in enumerate(ordered):
        # In order, the name that has the longest beginning in common stands next to it.
        alike = max(
            (_alike(name, other) for other in (*ordered[max(place - 1, 0) : place], *ordered[place + 1 : place + 2])), default=0
        )
        if len(name) <= _LENGTH:
            found[name] = name
        elif alike < _LENGTH - 1:
            found[name] = name[: _LENGTH - 1] + "…"
        else:
            rest = name[alike - 2 :]
            room = _LENGTH - _BEGINNING - 1
            found[name] = name[:_BEGINNING] + "…" + (rest if len(rest) <= room else rest[: room - 1] + "…")
    return found


def _alike(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )
