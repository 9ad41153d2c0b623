"""Words and colours of a trace's states, and foreign names as figures show them."""

from __future__ import annotations

import html

from tachoscope_core.report.palette import STATE_COLORS

COLORS = {
    "compute": STATE_COLORS["compute"],
    "overlap": "#AA4499",  # from the same scheme as the states of a life; it is not a state of a ledger
    "communication": STATE_COLORS["communication"],
    "copies": STATE_COLORS["host_to_device"],
    "call": STATE_COLORS["host_wait"],
    "operator": "#5B7C99",
    "annotation": "#B5A7C7",
    "other": STATE_COLORS["unexplained"],
    "idle": STATE_COLORS["unexplained"],
    "nothing": STATE_COLORS["unexplained"],
} | {
    state: STATE_COLORS[state] for state in ("data_wait", "host_to_device", "host_wait", "checkpoint", "evaluation", "unexplained")
}
WORDS = {
    "compute": "compute",
    "overlap": "overlapped by compute",
    "communication": "communication",
    "copies": "copies",
    "idle": "idle",
    "outside": "not recorded",
    "call": "runtime call",
    "operator": "operator",
    "annotation": "annotation, Python",
    "nothing": "nothing recorded",
    "host_to_device": "copies to the device",
    "data_wait": "waiting for data",
    "host_wait": "host outside operators",
    "checkpoint": "checkpoint",
    "evaluation": "evaluation",
    "unexplained": "unexplained",
}
HEADROOM = {"text": " "}
"""A title that leaves room above a figure for the numbers of steps and plotly's buttons."""
LEGEND = {"font": {"size": 11}, "itemwidth": 30}
BLANK = ("idle", "nothing", "outside")
"""Of these a picture has a pale colour, of the last none."""


def escaped(name: str, most: int = 70) -> str:
    """Return a foreign name as plotly shows it letter by letter, cut where it is long; plotly reads its texts as HTML."""
    text = "".join(letter if letter.isprintable() else " " for letter in name)
    return html.escape(text if len(text) <= most else f"{text[: most - 1]}…", quote=False)


def duration(nanoseconds: float) -> str:
    """Return a length of time as people read it, with the digits that kernels need."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.3g} {unit}" if abs(nanoseconds) < 1e3 * size else f"{nanoseconds / size:,.1f} {unit}"
    return f"{nanoseconds:.0f} ns"


def unique(names: list[str]) -> list[str]:
    """Return names so that no two are the same: an axis would take two rows of one name for one."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
