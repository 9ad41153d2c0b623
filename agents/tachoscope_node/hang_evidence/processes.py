"""What a rank and the processes that it started do at a hang: Python stacks, and what the kernel knows of each thread.

All is read; nothing of a process is changed, stopped or signalled. py-spy is asked only where the stacks cannot be read, if it is
installed, without stopping the process.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tachoscope.sampling.other_process import stacks_of
from tachoscope_core.redaction import redact
from tachoscope_core.storage.hang_bundles import ProcessEvidence, ThreadEvidence
from tachoscope_node.hang_evidence.rank_processes import HungRank, ProcessTable, SeenProcess, is_users, numbers, read_text

MOST_THREADS = 256
MOST_LISTED = 4096
"""Threads, of which those with the smallest numbers are looked at: the first, and those that began early."""
MOST_KERNEL_FRAMES = 32
MOST_TEXT = 400
"""Letters of a frame."""
PY_SPY_SECONDS = 10.0
_MOST_PY_SPY_BYTES = 32_000
_WORKER_LOOP = "_worker_loop"
NOT_SEEN = (
    "no process {pid} that writes this rank's records can be seen: it is gone, or belongs to another user; "
    "an agent in a container sees its own only, unless it has hostPID"
)


def evidence_of(rank: HungRank, table: ProcessTable) -> Iterator[ProcessEvidence]:
    """Yield what a rank and its child processes do, the rank first. Never raises for a process that is gone or forbidden."""
    about = ProcessEvidence(rank.rank, rank.pid, step=rank.step, phase=rank.phase)
    seen = table.of_rank(rank)
    if seen is None:
        yield msgspec.structs.replace(about, missing={"process": NOT_SEEN.format(pid=rank.pid)})
        return
    yield _process(msgspec.structs.replace(about, pid=seen.pid), seen, rank, table)
    for child in table.started_by(seen):
        yield _process(ProcessEvidence(rank.rank, child.pid, kind="child"), child, rank, table)


def _process(about: ProcessEvidence, seen: SeenProcess, rank: HungRank, table: ProcessTable) -> ProcessEvidence:
    """Return what a process does; nothing of one that has other rights than the job's user, or that ended meanwhile."""
    if not is_users(seen.pid, rank.uid, table.proc):
        return msgspec.structs.replace(about, missing={"process": "it has other rights than its rank, or ended"})
    found = _looked_at(about, rank.locator, table.proc)
    if not table.is_there(seen):
        return msgspec.structs.replace(about, missing={"process": "it ended while it was looked at"})
    return found


def _looked_at(about: ProcessEvidence, locator: str, proc: str) -> ProcessEvidence:
    missing: dict[str, str] = {}
    stacks = _stacks(about.pid, locator, missing)
    first = next(iter(stacks), about.pid)
    order = sorted(numbers(f"{proc}/{about.pid}/task", MOST_LISTED), key=lambda tid: (tid != first, tid))[:MOST_THREADS]
    threads = [_thread(about.pid, tid, stacks.get(tid, []), proc, missing) for tid in order]
    if not threads:
        missing["threads"] = "the process is gone, or its threads may not be read"
    py_spy = "" if any(thread.frames for thread in threads) else _py_spy(about.pid, missing)
    kind = about.kind
    if kind == "child" and any(_WORKER_LOOP in frame for thread in threads for frame in thread.frames):
        kind = "loader_worker"
    return msgspec.structs.replace(about, kind=kind, threads=threads, py_spy=py_spy, missing=missing)


def _stacks(pid: int, locator: str, missing: dict[str, str]) -> dict[int, list[str]]:
    if not locator:
        missing["python"] = "this rank's interpreter is of a version whose frames are not known"
        return {}
    try:
        found = stacks_of(pid, locator)
    except (OSError, ValueError) as error:
        missing["python"] = _why_unreadable(error)
        return {}
    return {tid: [_plain(frame) for frame in frames] for tid, frames in found if tid}


def _plain(text: str) -> str:
    """Return text of another process without secrets, and as it can be stored: names of files may be no text."""
    return redact(text.encode(errors="replace").decode())[:MOST_TEXT]


def _why_unreadable(error: OSError | ValueError) -> str:
    if isinstance(error, PermissionError):
        scope = read_text("/proc/sys/kernel/yama/ptrace_scope").strip()
        why = f" (kernel.yama.ptrace_scope is {scope})" if scope not in {"", "0"} else ""
        return f"the process may not be traced by this one{why}"
    if isinstance(error, OSError):
        return f"its memory cannot be read: {error.strerror or error}"
    return str(error)


def _thread(pid: int, tid: int, frames: list[str], proc: str, missing: dict[str, str]) -> ThreadEvidence:
    base = f"{proc}/{pid}/task/{tid}"
    name, state = "", ""
    for line in read_text(f"{base}/status").splitlines():
        key, _, value = line.partition(":")
        name = value.strip() if key == "Name" else name
        state = value.split()[0] if key == "State" and value.split() else state
    kernel = []
    try:
        kernel = [line.rpartition("] ")[2].split("+")[0] for line in Path(f"{base}/stack").read_text().splitlines()]
    except OSError as error:
        missing.setdefault("kernel_stack", f"/proc/PID/stack: {error.strerror}")
    return ThreadEvidence(
        tid,
        redact(name),
        state,
        read_text(f"{base}/wchan").strip().removeprefix("0"),
        read_text(f"{base}/syscall").strip()[:MOST_TEXT],
        kernel[:MOST_KERNEL_FRAMES],
        frames,
    )


def _py_spy(pid: int, missing: dict[str, str]) -> str:
    program = shutil.which("py-spy")
    if program is None:
        missing.setdefault("py_spy", "py-spy is not installed")
        return ""
    try:
        running = subprocess.Popen(
            [program, "dump", "--nonblocking", "--pid", str(pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        missing["py_spy"] = str(error)
        return ""
    said, is_cut = _bounded_output(running)
    text = redact(said.decode(errors="replace"))
    if is_cut:
        missing["py_spy"] = f"more than the first {_MOST_PY_SPY_BYTES} bytes of what it printed"
    elif running.returncode:
        missing["py_spy"] = text.strip()[-MOST_TEXT:] or f"exit code {running.returncode}"
        return ""
    return text


def _bounded_output(running: subprocess.Popen[bytes]) -> tuple[bytes, bool]:
    """Return what a program printed within `PY_SPY_SECONDS`, `_MOST_PY_SPY_BYTES` at most, and whether there was more."""
    too_long = threading.Timer(PY_SPY_SECONDS, running.kill)
    too_long.start()
    try:
        with running:
            said = running.stdout.read(_MOST_PY_SPY_BYTES) if running.stdout is not None else b""
            is_cut = len(said) == _MOST_PY_SPY_BYTES
            if is_cut:
                running.kill()
    finally:
        too_long.cancel()
    return said, is_cut
