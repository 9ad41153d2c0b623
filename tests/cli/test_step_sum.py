"""How the sum of a replayed step is shown."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from operations_making import Plan, write
from tachoscope_analyzers.replay.report import report
from tachoscope_show.report import html as render_html
from tachoscope_show.report import operation_steps as step_sum


def test_the_sum_is_shown_on_the_terminal_and_on_the_page_with_the_same_cells(tmp_path: Path) -> None:
    judged = report(write(tmp_path, Plan(stages=2, replicas=2, batches=8, steps=10, jitter=0.02, seed=1, stage={1: 1.8})))
    console = Console(width=120, record=True)
    console.print(step_sum.table(judged))
    text, page = console.export_text(), render_html.render(judged)

    for row in step_sum.rows(judged):
        assert all(cell in text and f">{cell}<" in page for cell in row if cell), row
    assert step_sum.rows(judged)[-1][0] == "step as recorded"
