"""The states of a ledger told apart: by colours, on a terminal of 16 colours too, and by letters where there are none."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from tachoscope_core.report.palette import STATE_COLORS
from tachoscope_core.report.report import Ledger

_FALLBACK_COLOR = "#666666"
_OF_SIXTEEN = {
    # The nearest of the 16 are the same for several states, so each is given its own.
    "compute": "green",
    "communication": "blue",
    "straggler_wait": "magenta",
    "data_wait": "yellow",
    "host_to_device": "cyan",
    "host_wait": "red",
    "checkpoint": "bright_yellow",
    "evaluation": "bright_magenta",
    "initialisation": "bright_blue",
    "restore": "white",
    "lost_work": "bright_cyan",
    "queued": "bright_white",
    "hung": "bright_red",
    "unexplained": "bright_black",
    "prefill": "cyan",
    "decode": "green",
    "preempted": "red",
    "cold_start": "bright_cyan",
    "busy": "green",
    "idle": "white",
    "starved": "bright_red",
}
_LETTERS = {
    "compute": "█",
    "communication": "C",
    "straggler_wait": "S",
    "data_wait": "D",
    "host_to_device": ">",
    "host_wait": "H",
    "checkpoint": "K",
    "evaluation": "E",
    "initialisation": "I",
    "restore": "R",
    "lost_work": "L",
    "queued": "Q",
    "hung": "X",
    "unexplained": "?",
    "prefill": "P",
    "decode": "█",
    "preempted": "V",
    "cold_start": "K",
    "busy": "█",
    "idle": "·",
    "starved": "S",
}
_WIDTH = 72


def color(state: str) -> str:
    """Return a state's colour, as `#rrggbb`."""
    return STATE_COLORS.get(state, _FALLBACK_COLOR)


def filled(state: str, width: int, console: Console) -> Text:
    """Return so many characters of a state, in its colour where the console has colours, else its own character."""
    if console.color_system is None or console.no_color:
        return Text(_LETTERS.get(state, state[:1]) * width)
    few = console.color_system in {"standard", "windows"}
    return Text("█" * width, style=_OF_SIXTEEN.get(state, "white") if few else color(state))


def bar(ledger: Ledger, console: Console) -> Text:
    """Return a ledger as a bar of 72 characters."""
    text = Text()
    used = 0.0
    for state, value in ledger.states.items():
        begin, used = used, used + value / ledger.wall_seconds * _WIDTH
        text.append_text(filled(state, round(used) - round(begin), console))
    return text
