import io
from typing import Any

import pytest
from rich.console import Console

from tachoscope_analyzers.trace.device_time.ledger import STATES
from tachoscope_core.metrics.catalogue import ENGINE_STATES, REQUEST_STATES, TRAINING_STATES
from tachoscope_core.report.report import Ledger
from tachoscope_show.text.state_bar import STATE_COLORS, bar, filled


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
@pytest.mark.parametrize(
    "states", [TRAINING_STATES, STATES, REQUEST_STATES, ENGINE_STATES], ids=["training", "trace", "request", "engine"]
)
def test_every_state_of_a_ledger_looks_different(options: dict[str, Any], states: tuple[str, ...]) -> None:
    shown = [state for state in states if state != "pipeline_bubble"]  # of no ledger yet

    assert set(shown) <= set(STATE_COLORS)
    assert len({printed(console(**options), state) for state in shown}) == len(shown)


def test_in_a_pipe_the_bar_shows_how_large_each_state_is() -> None:
    ledger = Ledger(unit="rank", wall_seconds=4.0, states={"compute": 2.0, "data_wait": 1.0, "straggler_wait": 1.0})

    assert bar(ledger, console()).plain == "█" * 36 + "D" * 18 + "S" * 18
