"""The demo's profiler traces: which steps they are of, and their way into the store."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tachoscope_core.records.records import TraceCaptured, encode
from tachoscope_core.storage.compacted import last_attempt
from tachoscope_core.storage.store import Store
from tachoscope_core.storage.traces import StoredTrace, recording_name

PROFILED_STEPS = 3
WARM_UP_STEPS = 1
"""Steps that the profiler sees before, without keeping them, as torch advises."""


def first_profiled(steps: int) -> int:
    """Return the number of the first step of so many that is profiled, in the middle; the first of all is 1."""
    return steps // 2


def slowed(steps: int) -> tuple[int, int]:
    """Return the first and last step that profiling makes slower: its warm-up, and the step after, in which it is stopped."""
    first = first_profiled(steps)
    return first - WARM_UP_STEPS, first + PROFILED_STEPS


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was put into the store. `verdict`: of the traces' analysis, one line."""

    recording: str
    traces: list[StoredTrace]
    verdict: str


def keep(store: Store, job: str, folder: Path, steps: int, console: Console) -> Recorded:
    """Put the traces of a run into the store as a recording of its job, with the records that tell which steps they made slower.

    Raises:
        TachoscopeError: the store cannot be written, or a trace cannot be read.
    """
    from tachoscope_cli.store.traces import store_traces

    first = first_profiled(steps)
    name = recording_name(time.time(), f"steps-{first}-{first + PROFILED_STEPS - 1}")
    written = store_traces(store, job, name, [str(folder)], console)
    _note(store, job, written, steps)
    return Recorded(name, written, _verdict(store, job, written))


def _note(store: Store, job: str, written: list[StoredTrace], steps: int) -> None:
    writer, attempt, host = str(uuid.uuid4()), max(last_attempt(store, job), 0), next(store.segments(job)).host
    first, last = slowed(steps)
    lines = b"".join(
        encode(
            TraceCaptured(
                job=job, attempt=attempt, writer=writer, seq=rank, rank=rank, local_rank=rank, host=host,
                time=time.time(), monotonic_ns=time.monotonic_ns(),
                reference=trace.path, bytes=trace.bytes, first_step=first, last_step=last,
            )
        )
        for rank, trace in enumerate(written)
    )  # fmt: skip
    store.write(job, host=host, writer=writer, attempt=attempt, offset=0, time=time.time(), lines=lines)


def _verdict(store: Store, job: str, written: list[StoredTrace]) -> str:
    """Analyze the traces, which also caches them for the explorer, and return the result in a line."""
    from tachoscope_analyzers.trace.findings.report import report
    from tachoscope_analyzers.trace.ranks.job import read_job
    from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
    from tachoscope_core.report.report import gravest
    from tachoscope_core.storage import traces as stored_traces
    from tachoscope_show.report import verdict_words

    found = report(read_job([stored_traces.local(store, trace) for trace in written], wanted=SummaryOptions(what_if=False)), job)
    worst = gravest(found.findings)
    return verdict_words.first_lines(found).verdict + (f" ({worst.class_})" if worst is not None else "")
