"""A store with planted runs of which one has a rank whose input is slow, for the pages Compare and What if."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_making import Extra, late, lines, nothing, slower
from planting import Planted
from tachoscope_core.storage.store import Store
from tachoscope_explorer.page.settings import Settings

SCRIPT = "<script>alert(1)</script>"
RUNS: dict[str, Extra] = {"run-1": nothing, "run-2": late(2, 1, 60, 0.03), "other": slower(1, 0.02)}


def put(folder: Path, name: str, extra: Extra = nothing, **options: int) -> Path:
    """Put a planted run into a store; the runs are all of the same second."""
    number = len(list(folder.glob("jobs/*")))
    written = lines(extra, name=name, **{"steps": 60, "seed": number, **options})
    Store(str(folder)).write(
        name, host="node-1", writer=f"{number:08d}-0000-4000-8000-000000000000", attempt=0, offset=0, time=1.7e9, lines=written
    )
    return folder


def planted_store(folder: Path, *names: str) -> Path:
    """Return a store with some of `RUNS`; default: all."""
    for name in names or RUNS:
        put(folder, name, RUNS[name])
    return folder


MS = 1_000_000


def planted_trace(path: Path, kernels: dict[str, int]) -> Path:
    """Write a trace of three steps of 10 ms, whose kernels have these names and ns."""
    trace = Planted()
    for step in range(3):
        begin = 10 * MS * step
        trace.step(step, begin, 10 * MS)
        for place, (name, duration) in enumerate(kernels.items()):
            start = begin + 3 * MS * place
            trace.op(f"aten::{name}", start, 90_000)
            trace.kernel(name, start + 10_000, duration, launched=start + 1_000)
    return trace.write(path)


def given_traces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return an explorer that was started with two traces: in the later one kernel_b takes longer, and one has a script's name."""
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(folder / "cache"))
    before = planted_trace(folder / "a.json", {"kernel_a": 2 * MS, "kernel_b": MS, SCRIPT: MS})
    now = planted_trace(folder / "b.json", {"kernel_a": 2 * MS, "kernel_b": 2 * MS, SCRIPT: MS // 2})
    return Settings(str(folder / "store"), traces=(str(before), str(now)))
