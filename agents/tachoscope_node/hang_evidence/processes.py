"""What a rank and the processes that it started do at a hang: Python stacks, and what the kernel knows of each thread.

All is read; nothing of a process is changed, stopped or signalled. py-spy is asked only where the stacks cannot be read, if it is
installed, without stopping the process.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tachoscope.sampling.other_process import stacks_of
from tachoscope.supervisor.process_exits import writes_segment
from tachoscope_core.redaction import redact
from tachoscope_core.storage.hang_bundles import ProcessEvidence, ThreadEvidence

MOST_CHILDREN = 64
MOST_THREADS = 256
MOST_KERNEL_FRAMES = 32
MOST_TEXT = 400
"""Letters of a frame."""
PY_SPY_SECONDS = 10.0
_MOST_PY_SPY_BYTES = 32_000
_NSPID = re.compile(r"^NSpid:\s*(.*)$", re.MULTILINE)
_WORKER_LOOP = "_worker_loop"


@dataclass(frozen=True, slots=True)
class HungRank:
    """A rank of a job that hangs, as its records told: `pid` in its own namespace, `locator` of its Python threads.

    Attributes:
        uid: whose processes may be looked at; None: all that this process may trace.
    """

    rank: int
    writer: str
    pid: int
    step: int
    phase: str
    locator: str
    uid: int | None = None


def evidence_of(rank: HungRank, proc: str = "/proc") -> Iterator[ProcessEvidence]:
    """Yield what a rank and its child processes do, the rank first. Never raises for a process that is gone or forbidden."""
    about = ProcessEvidence(rank.rank, rank.pid, step=rank.step, phase=rank.phase)
    pid = host_pid(rank, proc)
    if pid is None:
        reason = f"no process {rank.pid} that writes this rank's records can be seen: it is gone, or belongs to another user"
        yield msgspec.structs.replace(about, missing={"process": reason})
        return
    yield _process(msgspec.structs.replace(about, pid=pid), rank.locator, proc)
    for child in list(_children(pid, proc))[:MOST_CHILDREN]:
        child_about = ProcessEvidence(rank.rank, child, kind="child")
        if is_users(child, rank.uid, proc):
            yield _process(child_about, rank.locator, proc)
        else:
            yield msgspec.structs.replace(child_about, missing={"process": "it has other rights than its rank"})


def host_pid(rank: HungRank, proc: str = "/proc") -> int | None:
    """Return the rank's process id as this process sees it; None: it does not see it.

    A process counts if it has a segment of the rank open for writing, so that no record can point at another's process.
    """
    candidates = [rank.pid, *_numbers(proc)] if rank.pid > 0 else []  # others: it is in a namespace of its own, as a pod's
    for pid in candidates:
        if _own_pid(pid, proc) == rank.pid and is_users(pid, rank.uid, proc) and writes_segment(pid, rank.writer):
            return pid
    return None


def is_users(pid: int, uid: int | None, proc: str = "/proc") -> bool:
    """Return whether a process has the rights of a user and no others.

    A job can start a program with more rights (setuid, setgid, capabilities of a file), and what its locator makes an agent of root
    read goes where the job's user reads it.
    """
    if uid is None:
        return True
    status = dict(line.partition(":")[::2] for line in _read(f"{proc}/{pid}/status").splitlines())
    uids, gids = status.get("Uid", "").split(), status.get("Gid", "").split()
    more = uid != 0 and int(status.get("CapPrm", "0").strip() or "0", 16) != 0
    return uids == [str(uid)] * 4 and len(set(gids)) == 1 and not more


def _own_pid(pid: int, proc: str) -> int | None:
    """Return what a process is called in its own namespace."""
    found = _NSPID.search(_read(f"{proc}/{pid}/status"))
    with contextlib.suppress(ValueError, IndexError):
        return int(found.group(1).split()[-1]) if found else pid
    return None


def _numbers(folder: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []


def _children(pid: int, proc: str) -> Iterator[int]:
    """Yield all processes that a process started, and those that they did."""
    for tid in _numbers(f"{proc}/{pid}/task"):
        for word in _read(f"{proc}/{pid}/task/{tid}/children").split():
            if word.isdigit():
                yield int(word)
                yield from _children(int(word), proc)


def _process(about: ProcessEvidence, locator: str, proc: str) -> ProcessEvidence:
    missing: dict[str, str] = {}
    stacks = _stacks(about.pid, locator, missing)
    first = next(iter(stacks), about.pid)
    order = sorted(_numbers(f"{proc}/{about.pid}/task"), key=lambda tid: (tid != first, tid))[:MOST_THREADS]
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
    return {tid: [redact(frame[:MOST_TEXT]) for frame in frames] for tid, frames in found if tid}


def _why_unreadable(error: OSError | ValueError) -> str:
    if isinstance(error, PermissionError):
        scope = _read("/proc/sys/kernel/yama/ptrace_scope").strip()
        why = f" (kernel.yama.ptrace_scope is {scope})" if scope not in {"", "0"} else ""
        return f"the process may not be traced by this one{why}"
    if isinstance(error, OSError):
        return f"its memory cannot be read: {error.strerror or error}"
    return str(error)


def _thread(pid: int, tid: int, frames: list[str], proc: str, missing: dict[str, str]) -> ThreadEvidence:
    base = f"{proc}/{pid}/task/{tid}"
    name, state = "", ""
    for line in _read(f"{base}/status").splitlines():
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
        _read(f"{base}/wchan").strip().removeprefix("0"),
        _read(f"{base}/syscall").strip()[:MOST_TEXT],
        kernel[:MOST_KERNEL_FRAMES],
        frames,
    )


def _py_spy(pid: int, missing: dict[str, str]) -> str:
    program = shutil.which("py-spy")
    if program is None:
        missing.setdefault("py_spy", "py-spy is not installed")
        return ""
    try:
        done = subprocess.run(
            [program, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            timeout=PY_SPY_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        missing["py_spy"] = str(error)
        return ""
    if done.returncode:
        missing["py_spy"] = done.stderr.decode(errors="replace").strip()[-MOST_TEXT:] or f"exit code {done.returncode}"
    return redact(done.stdout.decode(errors="replace")[:_MOST_PY_SPY_BYTES])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
