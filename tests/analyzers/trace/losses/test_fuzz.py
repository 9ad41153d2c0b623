"""Whatever a file holds, reading and analysing it ends, with a trace or with one clear error."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mutating import mutated, nsight_export
from planting import Planted
from recorded import DATA
from tachoscope_analyzers.trace.analyses.all_tables import tables
from tachoscope_analyzers.trace.analyses.collectives import collectives
from tachoscope_analyzers.trace.analyses.operator_profile import profile
from tachoscope_analyzers.trace.events.launch_links import device_work
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.losses.judged_rank import judge_rank
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_core.errors import TachoscopeError


def list_tables(view: TraceView) -> list[Any]:
    return list(tables(view))


ANALYSES: tuple[Callable[[TraceView], Any], ...] = (
    lambda view: device_work(view.trace),
    lambda view: view.work,
    lambda view: view.operator_of,
    lambda view: judge_rank(view, what_if=True),
    collectives,
    profile,
    list_tables,
)
"""Every analysis belongs here; those that take milliseconds first: most of the bar's 200,000 files go through these only."""
_QUICK, _ALL_EVERY = 3, 25

_PARTS = 20
_FILES, _FILES_OF_THE_BAR = 160, 200_000
_SECONDS = 60
_REAL = ("hta/tiny_rank70", "hta/cpu_only_rank34", "hta/triton_example")


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: each file leaves nine others in the cache."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tachoscope-fuzz-", dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.bar] * (part >= _PARTS // 3)) for part in range(_PARTS)])
@pytest.mark.bar(but=("0", "1"))
def test_a_broken_file_gives_a_trace_or_one_clear_error(
    part: int, tmp_path: Path, quick_folder: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    count = (_FILES_OF_THE_BAR if request.config.getoption("--bar-runs") >= 10 else _FILES) // _PARTS
    seeds = _seeds(tmp_path)
    read_all = 0
    folder = quick_folder
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(folder / "cache"))
    for number in range(count):
        data = mutated(seeds, random.Random(part * 1_000_003 + number))
        path = folder / f"{number % 50}.json"
        path.write_bytes(data)
        with _judged(data, f"part {part}, number {number}"):
            view = TraceView(read(path))
            for analysis in ANALYSES if number % _ALL_EVERY == 0 or count <= _FILES else ANALYSES[:_QUICK]:
                analysis(view)
            read_all += 1
        if number % 50 == 49:
            shutil.rmtree(folder / "cache", ignore_errors=True)
    assert 0 < read_all < count, "the mutations are too weak or too strong to test anything"


def _seeds(folder: Path) -> list[bytes]:
    planted = Planted(extra={"with_stack": 1})
    for step in range(3):
        start = 1_713_219_600_000_000_000 + step * 1_000_000
        planted.step(step, start, 1_000_000)
        planted.op("aten::mm", start + 1000, 500_000, **{"External id": step, "Input Dims": [[2, 3], [3, 4]]})
        planted.kernel("gemm", start + 20_001, 300_002, launched=start + 2003, grid=[1, 2, 3])
        planted.kernel(
            "ncclDevKernel_AllReduce", start + 400_000, 100_007, launched=start + 9003, stream=9, **{"Collective name": "allreduce"}
        )
        planted.device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", start + 600_000, 10_000, bytes=4096)
    horovod = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "dense/kernel"}}]
    for step in range(3):
        for name, begin, end in (("NEGOTIATE_ALLREDUCE", 0, 10), ("NCCL_ALLREDUCE", 20, 50)):
            horovod += [
                {"ph": "B", "name": name, "ts": step * 100 + begin, "pid": 1},
                {"ph": "E", "ts": step * 100 + end, "pid": 1},
            ]
    tensorflow: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 1, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(Compute)"}},
        {"ph": "X", "pid": 1, "tid": 14, "ts": 12.345678, "dur": 3.25, "name": "fusion"},
        {},
    ]
    real = [gzip.decompress((DATA / f"{name}.json.gz").read_bytes()) for name in _REAL if (DATA / f"{name}.json.gz").is_file()]
    made = [json.dumps(horovod).encode(), json.dumps({"traceEvents": tensorflow}).encode(), nsight_export(folder / "seed.sqlite")]
    return [planted.text().encode(), *made, *real]


@contextmanager
def _judged(data: bytes, which: str) -> Iterator[None]:
    """Let the one error pass, and say which file it was otherwise."""

    def late(*_: object) -> None:
        raise AssertionError(f"hangs: {which}")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        yield
    except TachoscopeError as error:
        assert len(str(error)) < 2000, which
    except Exception as error:
        raise AssertionError(f"{which} ({len(data)} bytes, {data[:80]!r}...): {type(error).__name__}: {error}") from error
    finally:
        signal.alarm(0)
