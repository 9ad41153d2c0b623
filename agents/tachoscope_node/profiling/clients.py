"""Which processes of the machine can be profiled, and which job and rank each of them is, by what the kernel says of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tachoscope.process import identity
from tachoscope_core.errors import TachoscopeError
from tachoscope_node.profiling.endpoint import Sender

MAX_CLIENTS = 1024
FORGET_SECONDS = 20.0
"""A process asks every 5 s; one that was not heard for so long has ended, or stands still."""
_MAX_ENVIRONMENT = 1 << 20
_MAX_RANK = 1 << 20


@dataclass(frozen=True, slots=True)
class ClientProcess:
    """A process.

    Attributes:
        pid, parent: as this agent sees them. began: when it was started, in the kernel's ticks: a pid is used again.
        has_rank: its launcher gave it a rank, which a launcher itself has not.
        directory: that the socket lies in at which it asks; None: the abstract one. seen_as: how the process names that directory.
    """

    pid: int
    uid: int
    parent: int
    began: int
    job: str
    rank: int
    world_size: int
    has_rank: bool
    directory: Path | None = None
    seen_as: str = ""


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """What a process under the probe says about itself, and which user told it; `step_seconds`: of its last step, 0: not known."""

    uid: int
    job: str
    rank: int
    world_size: int
    step_seconds: float = 0.0


class UnknownError(Exception):
    """It cannot be determined what a process is; the message says why."""


def identify(proc: Path, sender: Sender, known: Mapping[int, KnownProcess], directory: Path | None = None) -> ClientProcess:
    """Return who a process is.

    Args:
        known: processes that report themselves, by pid. directory: that the socket lies in at which it asks.

    Raises:
        UnknownError: it has gone, may not be looked at, or has no usable name for its job.
    """
    if sender.pid <= 0:
        raise UnknownError("its process is in a namespace that the agent cannot see: run the agent in the host's")
    folder = proc / str(sender.pid)
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        parent, began = int(fields[1]), int(fields[19])
        environ = _environment(folder)
        words = (folder / "cmdline").read_bytes()[:_MAX_ENVIRONMENT].decode(errors="replace").split("\0")
    except (OSError, IndexError, ValueError) as error:
        raise UnknownError(f"could not read its process: {error}") from None
    place = identity.place(environ)
    told = known.get(sender.pid)
    told = told if told is not None and told.uid == sender.uid else None
    if told is not None:
        job, number, world = told.job, told.rank, told.world_size
    else:
        job = _job(environ, words, parent if "RANK" in environ else sender.pid)
        number, world = (place.rank, place.world_size) if place is not None else (0, 1)
    if not 0 <= number < max(world, 1) <= _MAX_RANK:
        raise UnknownError(f"it cannot be rank {number} of {world}")
    has_rank = place is not None or told is not None
    seen_as = environ.get("KINETO_IPC_SOCKET_DIR", "")
    return ClientProcess(sender.pid, sender.uid, parent, began, job, number, world, has_rank, directory, seen_as)


def _environment(folder: Path) -> dict[str, str]:
    with (folder / "environ").open("rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read(_MAX_ENVIRONMENT).split(b"\0"))
        return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def _job(environ: Mapping[str, str], words: list[str], number: int) -> str:
    """Return the name by which the probe would know the job, or `<script>-<pid>`, with the launcher's pid for ranks."""
    script = next((word for word in words[1:] if word.endswith(".py")), words[0])
    try:
        return identity.resolve(environ, default=f"{Path(script).stem or 'python'}-{number}").job
    except TachoscopeError as error:
        raise UnknownError(str(error)) from None


class Clients:
    """The processes that ask. Any thread may call the methods.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, proc: Path, known: Callable[[], Mapping[int, KnownProcess]], clock: Callable[[], float]) -> None:
        self._proc = proc
        self.known = known
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: dict[int, tuple[float, ClientProcess | UnknownError]] = {}

    def identify(self, sender: Sender, directory: Path | None = None) -> ClientProcess | UnknownError:
        """Note that a process asked; return who it is. One whose rank is known is not looked at again."""
        now = self._clock()
        with self._lock:
            found = self._heard.get(sender.pid, (0.0, None))[1]
            self._drop(now)
        if not isinstance(found, ClientProcess) or not found.has_rank or not self._same(found, sender):
            try:
                found = identify(self._proc, sender, self.known(), directory)
            except UnknownError as error:
                found = error
        with self._lock:
            if sender.pid in self._heard or len(self._heard) < MAX_CLIENTS:
                self._heard[sender.pid] = (now, found)
        return found

    def _same(self, who: ClientProcess, sender: Sender) -> bool:
        return who.uid == sender.uid and began(self._proc, who.pid) == who.began

    def _drop(self, now: float) -> None:
        for pid in [pid for pid, (at, _) in self._heard.items() if now - at > FORGET_SECONDS]:
            del self._heard[pid]

    def unknown(self) -> dict[int, str]:
        """Return why processes cannot be profiled, by pid."""
        with self._lock:
            return {pid: str(found) for pid, (_, found) in self._heard.items() if isinstance(found, UnknownError)}

    def jobs(self) -> dict[str, dict[int, ClientProcess]]:
        """Return the processes by job and rank, of the user whose process asked first."""
        with self._lock:
            self._drop(self._clock())
            found = [who for _, who in self._heard.values() if isinstance(who, ClientProcess)]
        by_pid = {who.pid: who for who in found}
        launchers = {who.parent for who in found if who.has_rank}
        jobs: dict[str, dict[int, ClientProcess]] = {}
        owners: dict[str, int] = {}
        for who in sorted(found, key=lambda who: (not who.has_rank, who.began, who.pid)):
            if owners.setdefault(who.job, who.uid) != who.uid or _is_helper(who, by_pid):
                continue
            if who.has_rank or (who.job not in jobs and who.pid not in launchers):
                jobs.setdefault(who.job, {}).setdefault(who.rank, who)
        return jobs


def _is_helper(who: ClientProcess, others: Mapping[int, ClientProcess]) -> bool:
    """Return whether a process was started by another of the same rank, as loader workers are: they inherit its environment."""
    parent = others.get(who.parent)
    return parent is not None and (parent.job, parent.rank, parent.has_rank) == (who.job, who.rank, who.has_rank)


def began(proc: Path, pid: int) -> int | None:
    """Return when a process was started, in ticks, or None when it has gone."""
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
