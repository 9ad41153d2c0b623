"""What hosts tell each other: the first one sets tasks, all answer, through the key-value store of torch on the first host."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.report.preflight import Exchange, Verdict
from tachoscope_core.storage.preflights import Measurement, NodeResult
from tachoscope_preflight.together.places import Seat

_PREFIX = "tachoscope-preflight"
_STORE_SECONDS = 10.0
"""For which one of a pair waits for the address of the other one."""
_LONGEST_TASK_SECONDS = 900.0
"""For which a host waits that has nothing to do: pairs of others are measured meanwhile."""
_BEAT_SECONDS, _LOOK_SECONDS = 1.0, 2.0
SILENT_SECONDS = 20.0
"""A host that sends no beat for so long has ended: one that a CPU quota pauses, or that swaps, still sends some."""


class Addition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a host stores beside its own measurements: exchanges, and the verdict, evidence for the life cycle of nodes."""

    exchanged: list[Measurement] = []
    verdict: str = ""
    why: str = ""


class Task(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all hosts do next, by rank.

    Attributes:
        groups: tests to make, by rank; empty: all. pairs, rings: that exchange at one time.
        verdicts: at the end, of each rank. adds: at the end, to its result. error: why everybody stops.
    """

    kind: Literal["measure", "clock", "pairs", "rings", "end", "stop"]
    groups: dict[int, list[str]] = {}
    pairs: list[tuple[int, int]] = []
    rings: list[list[int]] = []
    verdicts: dict[int, Verdict] = {}
    adds: dict[int, Addition] = {}
    error: str = ""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a host answers to a task; to a ring bytes per second. `time`: its clock's, Unix seconds."""

    host: str = ""
    time: float = 0.0
    result: NodeResult | None = None
    exchanges: list[Exchange] = []
    ring: float | None = None
    error: str = ""


class Meeting:
    """The key-value store. Only the first host sets tasks; each host writes its own answers."""

    def __init__(self, torch: Any, seat: Seat, wait_seconds: float) -> None:
        self._distributed = torch.distributed
        self.seat = seat
        self._beats: dict[int, tuple[bytes, float]] = {}
        try:
            self.store = self._connected(wait_seconds, listens=seat.listens)
        except (RuntimeError, ValueError) as error:  # torch's own errors are RuntimeErrors
            what = "could not listen on" if seat.listens else "could not reach the first host at"
            reason = str(error).partition("\n")[0][:200]
            raise TachoscopeError(f"{what} {seat.master}:{seat.port}: {reason}", exit_code=ExitCode.NOT_WELL) from None

    def _connected(self, seconds: float, *, listens: bool) -> Any:
        patience = timedelta(seconds=seconds)
        store = self._distributed.TCPStore(
            self.seat.master, self.seat.port, None, listens, timeout=patience, wait_for_workers=False
        )
        store.set_timeout(timedelta(seconds=_STORE_SECONDS))
        return self._distributed.PrefixStore(_PREFIX, store)

    def join(self, host: str) -> None:
        """Tell the first host that this one is there, and from then on that it still is."""
        self.store.set(f"join/{self.seat.rank}", host)
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        with contextlib.suppress(RuntimeError):  # the first host is gone, as the next task says
            store = self._connected(_STORE_SECONDS, listens=False)  # a connection of its own: a wait for a task keeps the other
            for count in itertools.count():
                store.set(f"beat/{self.seat.rank}", str(count))
                time.sleep(_BEAT_SECONDS)

    def joined(self, ranks: Iterable[int], patience_seconds: float) -> dict[int, str]:
        """Return the names of the hosts that came in time."""
        stop = time.monotonic() + patience_seconds
        found = ((rank, self._get(f"join/{rank}", max(stop - time.monotonic(), 0.01))) for rank in ranks)
        return {rank: name.decode(errors="replace") for rank, name in found if name is not None}

    def set_task(self, number: int, task: Task) -> None:
        self.store.set(f"task/{number}", msgspec.json.encode(task))

    def task(self, number: int, patience_seconds: float = _LONGEST_TASK_SECONDS) -> Task:
        """Return a task as soon as the first host has set it.

        Raises:
            TachoscopeError: the first host is gone, or stopped everybody.
        """
        data = self._get(f"task/{number}", patience_seconds)
        if data is None:
            raise TachoscopeError(f"the first host, {self.seat.master}, has stopped", exit_code=ExitCode.NOT_WELL)
        task = msgspec.json.decode(data, type=Task)
        if task.kind == "stop":
            raise TachoscopeError(task.error, exit_code=ExitCode.NOT_WELL)
        return task

    def answer(self, number: int, answer: Answer) -> None:
        self.store.set(f"answer/{number}/{self.seat.rank}", msgspec.json.encode(answer))

    def answers(self, number: int, ranks: Iterable[int], patience_seconds: float) -> dict[int, Answer]:
        """Return what these ranks answered in time; those that did not, that have ended, or not in this form, are missing."""
        stop = time.monotonic() + patience_seconds
        found: dict[int, Answer] = {}
        missing = dict.fromkeys(ranks)
        while missing:
            rank, left = next(iter(missing)), stop - time.monotonic()
            data = self._get(f"answer/{number}/{rank}", min(max(left, 0.01), _LOOK_SECONDS))
            if data is None and left > 0:
                for silent in self._silent(number, missing):
                    del missing[silent]
                continue
            del missing[rank]
            with contextlib.suppress(msgspec.DecodeError):
                found |= {rank: msgspec.json.decode(data, type=Answer)} if data is not None else {}
        return found

    def _silent(self, number: int, ranks: Iterable[int]) -> list[int]:
        """Return which of these ranks ended before they answered: they sent beats, and none for long.

        Of one that never sent any nothing is known. Without the store nobody can answer.
        """
        try:
            return [rank for rank in ranks if self._is_silent(rank) and not self.store.check([f"answer/{number}/{rank}"])]
        except RuntimeError:
            return [*ranks]

    def _is_silent(self, rank: int) -> bool:
        if not self.store.check([f"beat/{rank}"]):
            return False
        now, beat = time.monotonic(), self.store.get(f"beat/{rank}")
        before, since = self._beats.get(rank, (b"", now))
        since = since if beat == before else now
        self._beats[rank] = (beat, since)
        return bool(since <= now - SILENT_SECONDS)

    def _get(self, key: str, patience_seconds: float) -> bytes | None:
        try:
            self.store.wait([key], timedelta(seconds=patience_seconds))
            data: bytes = self.store.get(key)
        except RuntimeError:
            return None
        return data
