"""How the sum of a replayed step is shown."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pipeline_operations.report import judged
from benchmarks.pipeline_operations.step_sum import rows, table
from operations_making import Plan, write
from rich.console import Console


def test_the_sum_is_shown_with_the_step_as_recorded_at_its_end(tmp_path: Path) -> None:
    report, parts = judged(write(tmp_path, Plan(stages=2, replicas=2, batches=8, steps=10, jitter=0.02, seed=1, stage={1: 1.8})))
    console = Console(width=120, record=True)
    console.print(table(parts, report.step_seconds.mean))
    text = console.export_text()

    for row in rows(parts, report.step_seconds.mean):
        assert all(cell in text for cell in row if cell), row
    assert rows(parts, report.step_seconds.mean)[-1][0] == "step as recorded"
