"""The states of a ledger told apart: by colours, on a terminal of 16 colours too, and by letters where there are none."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from tachoscope_core.report.palette import STATE_COLORS
from tachoscope_core.report.report import Ledger

_FALLBACK_COLOR = "#666666"
_DRAWN = {
    # Colour on terminals of 16 colours, each its own though the nearest are the same for several; character without colours.
    "compute": ("green", "█"),
    "communication": ("blue", "C"),
    "straggler_wait": ("magenta", "S"),
    "data_wait": ("yellow", "D"),
    "host_to_device": ("cyan", ">"),
    "host_wait": ("red", "H"),
    "checkpoint": ("bright_yellow", "K"),
    "evaluation": ("bright_magenta", "E"),
    "compile": ("bright_green", "O"),
    "initialisation": ("bright_blue", "I"),
    "restore": ("white", "R"),
    "lost_work": ("bright_cyan", "L"),
    "queued": ("bright_white", "Q"),
    "hung": ("bright_red", "X"),
    "unexplained": ("bright_black", "?"),
    "prefill": ("cyan", "P"),
    "decode": ("green", "█"),
    "preempted": ("red", "V"),
    "cold_start": ("bright_cyan", "K"),
    "busy": ("green", "█"),
    "idle": ("white", "·"),
    "starved": ("bright_red", "S"),
}
_WIDTH = 72


def color(state: str) -> str:
    """Return a state's colour, as `#rrggbb`."""
    return STATE_COLORS.get(state, _FALLBACK_COLOR)


def filled(state: str, width: int, console: Console) -> Text:
    """Return so many characters of a state, in its colour where the console has colours, else its own character."""
    of_sixteen, character = _DRAWN.get(state, ("white", state[:1]))
    if console.color_system is None or console.no_color:
        return Text(character * width)
    few = console.color_system in {"standard", "windows"}
    return Text("█" * width, style=of_sixteen if few else color(state))


def bar(ledger: Ledger, console: Console) -> Text:
    """Return a ledger as a bar of 72 characters."""
    text = Text()
    used = 0.0
    for state, value in ledger.states.items():
        begin, used = used, used + value / ledger.wall_seconds * _WIDTH
        text.append_text(filled(state, round(used) - round(begin), console))
    return text
