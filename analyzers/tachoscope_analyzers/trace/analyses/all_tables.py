"""All tables of a trace, each as Parquet and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

import pandas as pd

from tachoscope_analyzers.trace.analyses import collectives as communication
from tachoscope_analyzers.trace.analyses import data_quality as quality
from tachoscope_analyzers.trace.analyses import launches, memory, operator_tree, roofline
from tachoscope_analyzers.trace.device_time import breakdown, idle, kernels
from tachoscope_analyzers.trace.device_time import ledger as states
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph import critical_path
from tachoscope_core.errors import TachoscopeError

_TABLES: tuple[tuple[str, Callable[[TraceView], pd.DataFrame]], ...] = (
    ("quality", quality.quality),
    ("steps", states.step_states),
    ("breakdown", breakdown.breakdown),
    ("breakdown_by_step", breakdown.by_step),
    ("kernel_summary", kernels.summary),
    ("kernels", kernels.by_name),
    ("kernel_classes", kernels.by_class),
    ("launches", launches.by_operator),
    ("launches_by_step", launches.by_step),
    ("launch_summary", launches.launch_summary),
    ("queues", launches.queue_summary),
    ("queue_length", launches.queue_length),
    ("copies", memory.copies),
    ("allocator_calls", memory.allocator_calls),
    ("memory", lambda view: memory.timeline(view.trace)),
    ("memory_summary", memory.memory_summary),
    ("operators", operator_tree.by_operator),
    ("modules", operator_tree.by_module),
    ("roofline", roofline.roofline),
    ("roofline_coverage", roofline.coverage),
)


def tables(view: TraceView) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and content of every table, one at a time."""
    for name, make in _TABLES:
        yield name, make(view)
    gaps = idle.idle(view)
    yield "idle_gaps", gaps
    yield "idle_causes", idle.by_cause(gaps)
    found = communication.collectives(view)
    yield "collectives", found.each
    yield "collectives_by_group", found.by_group
    path = critical_path.critical_path(view)
    yield "critical_path", path
    yield "critical_path_by_category", critical_path.by_category(path)
    yield "critical_path_by_name", critical_path.by_name(path)


def write_tables(view: TraceView, folder: Path) -> None:
    """Write every table of a trace into a folder.

    Raises:
        TachoscopeError: the folder cannot be written.
    """
    for name, table in tables(view):
        write_table(table, folder, name)


def must_be_writable(folder: Path) -> None:
    """Check that tables can be written into a folder, before any work is done for them; it is made.

    Raises:
        TachoscopeError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TachoscopeError(f"could not write tables to {folder}: {error.strerror or error}") from None


def write_table(table: pd.DataFrame, folder: Path, name: str) -> None:
    """Write one table as `name.parquet` and `name.csv`.

    Raises:
        TachoscopeError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        table.to_parquet(folder / f"{name}.parquet", index=False)
        table.to_csv(folder / f"{name}.csv", index=False)
    except OSError as error:
        raise TachoscopeError(f"could not write {folder / name}: {error.strerror or error}") from None
