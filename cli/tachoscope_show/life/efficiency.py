"""How users or accounts used their accelerators, as text that can be mailed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tachoscope_core.report.efficiency import AllocationUse, Efficiency
from tachoscope_show.text.safe_text import safe
from tachoscope_show.text.units import percent

_MOST_ALLOCATIONS = 20


def render(found: Sequence[Efficiency], by: str, since: float, until: float, out: Console, *, allocations: bool = False) -> None:
    """Print a table of all, and with `allocations` one of the allocations of each."""
    form = "%Y-%m-%d %H:%M"
    began, ended = time.strftime(form, time.localtime(since)), time.strftime(form, time.localtime(until))
    out.print(f"Accelerator-hours held from {began} to {ended}, by {by}", soft_wrap=True)
    if not found:
        out.print("no allocation with accelerators", soft_wrap=True)
        return
    table = _table(by, "allocations", "held", "productive", "lost", "not recorded", "most lost in")
    for one in found:
        table.add_row(safe(one.name) or "(not named)", str(len(one.allocations)), *_hours(one), _most(one.lost_hours))
    out.print(table)
    for one in found if allocations else ():
        out.print()
        _allocations(one, out)
    out.print()
    out.print(
        "productive: of the hours of recorded jobs, those in which steps were done for the first time. not recorded: no job of the "
        "store ran, so what the accelerators did is not known.",
        soft_wrap=True,
    )


def _allocations(one: Efficiency, out: Console) -> None:
    table = _table("Slurm job", "jobs", "held", "productive", "lost", "not recorded", "most lost in")
    for use in one.allocations[:_MOST_ALLOCATIONS]:
        table.add_row(safe(use.scheduler_job), safe(", ".join(use.jobs)), *_hours(use), _most(use.lost_hours))
    out.print(table)
    if len(one.allocations) > _MOST_ALLOCATIONS:
        out.print(f"{len(one.allocations) - _MOST_ALLOCATIONS} more (--format json)")
    job = next((use.jobs[0] for use in one.allocations if use.jobs and use.lost_hours), None)
    if job is not None:
        out.print(f"next: tachoscope goodput {safe(job)}", soft_wrap=True)


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name in {"allocations", "held", "productive", "lost", "not recorded"} else "left")
    return table


def _hours(one: Efficiency | AllocationUse) -> tuple[str, str, str, str]:
    recorded = one.held_hours - one.unrecorded_hours
    productive = percent(one.productive_hours / recorded) if recorded > 0 else "not known"
    return f"{one.held_hours:.1f} h", productive, f"{sum(one.lost_hours.values()):.1f} h", f"{one.unrecorded_hours:.1f} h"


def _most(lost_hours: dict[str, float]) -> str:
    return "" if not lost_hours else max(lost_hours, key=lost_hours.__getitem__)
