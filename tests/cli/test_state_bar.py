import io
from typing import Any

import pytest
from rich.console import Console

from tachoscope_analyzers.trace.states import STATES
from tachoscope_cli.state_bar import STATE_COLORS, bar, filled
from tachoscope_core.report import Ledger


def console(**options: Any) -> Console:
    return Console(file=io.StringIO(), width=110, **options)


def printed(made: Console, state: str) -> str:
    made.print(filled(state, 3, made), end="")
    text = made.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"force_terminal": True, "color_system": "standard"},
        {"force_terminal": True, "color_system": "256"},
        {"force_terminal": True, "color_system": "truecolor"},
        {"force_terminal": True, "color_system": "256", "no_color": True},
    ],
    ids=["pipe", "16 colours", "256 colours", "all colours", "NO_COLOR"],
)
def test_every_state_looks_different(options: dict[str, Any]) -> None:
    assert {*STATES, "straggler_wait"} <= set(STATE_COLORS)
    assert len({printed(console(**options), state) for state in STATE_COLORS}) == len(STATE_COLORS)


def test_in_a_pipe_the_bar_shows_how_large_each_state_is() -> None:
    ledger = Ledger(unit="rank", wall_seconds=4.0, states={"compute": 2.0, "data_wait": 1.0, "straggler_wait": 1.0})

    assert bar(ledger, console()).plain == "█" * 36 + "D" * 18 + "S" * 18
