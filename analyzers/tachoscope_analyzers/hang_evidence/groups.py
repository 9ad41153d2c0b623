"""Groups processes by their stacks, the odd ones first: those that wait for nobody, then the smaller groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tachoscope_core.report.stack_groups import StackGroup, WaitsFor
from tachoscope_core.storage.hang_bundles import STOPPED, HangBundle, ProcessEvidence, ThreadEvidence

_FRAME = re.compile(r"(?P<path>.*):(?P<line>-?\d+) (?P<name>.*)")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>", "<__array_function__")
_PROBE = re.compile(
    r"/tachoscope/(?:bootstrap|checkpoints|data|patches|process|profiling|sampling|timing|training)/[a-z_]+\.py:|/agents/tachoscope/"
)

_COLLECTIVES = ("torch/distributed/", "torch/nn/parallel/distributed.py")
_LOADER = ("_try_get_data", "_get_data")
_WORKER_LOOP = "_worker_loop"
_FETCH = "torch/utils/data/_utils/fetch.py"
_DEVICE = ("torch/cuda/__init__.py", "torch/cuda/streams.py", "torch/accelerator/__init__.py")
_WRAPPERS = ("torch/distributed/c10d_logger.py", "torch/utils/_contextlib.py", "contextlib.py")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A process with what is judged of it."""

    host: str
    process: ProcessEvidence
    frames: list[str]
    thread: ThreadEvidence | None
    waits_for: WaitsFor
    named: bool


def groups_of(bundles: Sequence[HangBundle]) -> list[StackGroup]:
    """Return the processes of all nodes grouped by stack, the odd ones first.

    A rank that is stopped by a signal comes first, then who waits for nobody; of two, whom the rule of hangs named, then the
    smaller group, then those of whom no stack is known. Loader workers count only where their rank waits for them.
    """
    placed = [one for bundle in bundles for process in bundle.processes if (one := _place(bundle, process)) is not None]
    for_loader = {one.process.rank for one in placed if one.process.kind == "rank" and one.waits_for == "loader"}
    placed = [one for one in placed if one.process.kind == "rank" or (one.process.rank in for_loader and one.waits_for != "work")]
    with_odd_worker = {one.process.rank for one in placed if one.process.kind == "loader_worker"}
    grouped: dict[tuple[object, ...], list[_Placed]] = {}
    for one in placed:
        grouped.setdefault((one.process.kind, one.waits_for, _is_stopped(one), *one.frames, *_unknown(one)), []).append(one)
    ordered = sorted(grouped.values(), key=lambda group: _order(group, with_odd_worker))
    return [_group(group) for group in ordered]


def _order(group: list[_Placed], with_odd_worker: set[int]) -> tuple[bool, bool, bool, bool, bool, int, int]:
    first = group[0]
    child = first.process.kind == "child"
    waits = first.waits_for in {"others", "device", "work"}
    loads = first.waits_for == "loader" and first.process.rank in with_odd_worker  # behind its worker, which is the cause
    named = any(one.named for one in group)
    unknown = not (first.frames or named)
    return (not _is_stopped(first), child, waits, loads, unknown, (0 if named else len(group)), first.process.rank)


def _place(bundle: HangBundle, process: ProcessEvidence) -> _Placed | None:
    """Judge a process; None: one of which nothing is known but that it is a child."""
    thread = process.threads[0] if process.threads else None
    frames = thread.frames if thread is not None else []
    if process.kind == "loader_worker":
        frames = _within_worker(frames)
    if process.kind == "child" and not frames:
        return None
    named = process.kind == "rank" and process.rank == bundle.failed_rank
    return _Placed(bundle.node, process, frames, thread, _waits_for(process, frames), named)


def _within_worker(frames: list[str]) -> list[str]:
    """Return the part of a forked worker's stack that is the worker's: the rest is the loop that forked it."""
    for depth, frame in enumerate(frames):
        if _name(frame) == _WORKER_LOOP:
            return frames[: depth + 1]
    return frames


def _waits_for(process: ProcessEvidence, frames: list[str]) -> WaitsFor:
    inner = [frame for frame in frames if not (any(part in frame for part in _WRAPPERS) or _PROBE.search(frame))]
    if process.kind == "loader_worker":
        return "" if any(_FETCH in frame for frame in frames) else "work"
    if not inner:
        return ""
    if any(part in inner[0] for part in _COLLECTIVES) or _name(inner[0]) == "_engine_run_backward":
        return "others"
    if any(part in inner[0] for part in _DEVICE):
        return "device"
    if any(_name(frame) in _LOADER and "dataloader.py" in frame for frame in frames):
        return "loader"
    return ""


def _group(group: list[_Placed]) -> StackGroup:
    first = group[0]
    states = dict.fromkeys(_state(one.thread) for one in group if one.thread is not None)
    members = sorted(group, key=lambda one: (one.process.rank, one.process.pid))
    return StackGroup(
        kind="rank" if first.process.kind == "rank" else "loader_worker" if first.process.kind == "loader_worker" else "child",
        ranks=[one.process.rank for one in members],
        pids=[one.process.pid for one in members],
        hosts=sorted({one.host for one in members}),
        waits_for=first.waits_for,
        where=where(first.frames),
        frames=first.frames,
        states=[state for state in states if state],
        named=any(one.named for one in group),
    )


def _state(thread: ThreadEvidence) -> str:
    kernel = thread.kernel[0] if thread.kernel else thread.wchan
    return " ".join(filter(None, (thread.state, kernel)))


def _is_stopped(one: _Placed) -> bool:
    return one.thread is not None and one.thread.state in STOPPED


def _unknown(one: _Placed) -> tuple[object, ...]:
    """Keep processes apart of which no stack is known: that they are alike is not known either."""
    return () if one.frames else (one.process.pid, one.host)


def _name(frame: str) -> str:
    found = _FRAME.fullmatch(frame)
    return found["name"] if found else ""


def _is_library(frame: str) -> bool:
    return any(part in frame for part in _LIBRARIES) or _PROBE.search(frame) is not None


def where(frames: Iterable[str]) -> str:
    """Return the innermost frame of user code as `file:line function`, else the innermost one; empty: there is none."""
    frames = list(frames)
    chosen = next((frame for frame in frames if not _is_library(frame)), frames[0] if frames else "")
    found = _FRAME.fullmatch(chosen)
    return f"{found['path'].rpartition('/')[2]}:{found['line']} {found['name']}" if found else chosen
