"""What each host does with the tasks that the first one sets."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.report.preflight import Verdict
from tachoscope_core.storage.preflights import NodeResult
from tachoscope_preflight.alone import better
from tachoscope_preflight.node import Wanted, measure
from tachoscope_preflight.together import exchange
from tachoscope_preflight.together.backends import backend
from tachoscope_preflight.together.meeting import Addition, Answer, Meeting, Task


class Member:
    """A host of the meeting.

    Attributes:
        result: what it measured so far, each rate in its best round.
    """

    def __init__(self, torch: Any, meeting: Meeting, wanted: Wanted) -> None:
        self._torch, self._meeting, self.wanted = torch, meeting, wanted
        self.host = socket.gethostname()
        self.result: NodeResult | None = None
        seat = meeting.seat
        try:
            address = exchange.own_address(seat.master, seat.port)
        except OSError as error:
            raise TachoscopeError(f"{seat.master}: {error.strerror}", exit_code=ExitCode.NOT_WELL) from None
        self.line = exchange.Line(backend(torch, wanted.backend, address, wanted.interface), wanted.quick)

    def do(self, number: int, task: Task) -> Answer:
        """Do this host's part of a task, and return the answer."""
        rank = self._meeting.seat.rank
        if task.kind == "measure":
            return self._measure(task.groups.get(rank, []) if task.groups else None)
        if task.kind == "pairs":
            own = next((pair for pair in task.pairs if rank in pair), None)
            return self._exchange(number, own) if own is not None else Answer(host=self.host)
        own_ring = next((ring for ring in task.rings if rank in ring), None)
        return self._ring(number, own_ring) if own_ring is not None else Answer(host=self.host, time=time.time())

    def _measure(self, groups: list[str] | None) -> Answer:
        """Measure all, or these groups of tests; none where the list is empty."""
        if groups is None:
            self.result = measure(self._torch, self.wanted)
        elif groups and self.result is not None:
            self.result = better(self.result, measure(self._torch, self.wanted, groups))
        return Answer(host=self.host, result=self.result)

    def _exchange(self, number: int, pair: tuple[int, int]) -> Answer:
        rank = self._meeting.seat.rank
        other = pair[1] if rank == pair[0] else pair[0]
        name = f"pair/{number}/{pair[0]}-{pair[1]}"
        found = exchange.pair(self.line, self._meeting.store, name, str(rank), str(other), first=rank == pair[0])
        return Answer(host=self.host, exchanges=found)

    def _ring(self, number: int, ranks: list[int]) -> Answer:
        place = ranks.index(self._meeting.seat.rank)
        try:
            rate = exchange.ring(self.line, self._meeting.store, f"ring/{number}/{ranks[0]}", place, len(ranks))
        except (RuntimeError, OSError) as error:
            return Answer(host=self.host, error=str(error).partition("\n")[0][:200])
        return Answer(host=self.host, ring=rate)


def follow(member: Member, meeting: Meeting, finish: Callable[[NodeResult], None]) -> Verdict:
    """Do all tasks of the first host; return its verdict on this one.

    Args:
        finish: takes this host's whole result.

    Raises:
        TachoscopeError: the first host is gone, or stopped everybody.
    """
    rank, number = meeting.seat.rank, 0
    meeting.join(member.host)
    while (task := meeting.task(number)).kind != "end":
        meeting.answer(number, member.do(number, task))
        number += 1
    end(member, task, rank, finish)
    meeting.answer(number, Answer(host=member.host))
    return task.verdicts.get(rank, "not judged")


def end(member: Member, task: Task, rank: int, finish: Callable[[NodeResult], None]) -> None:
    """Hand over what this host measured, with what the first one adds."""
    if member.result is not None:
        adds = task.adds.get(rank, Addition())
        measurements = [*member.result.measurements, *adds.exchanged]
        finish(msgspec.structs.replace(member.result, measurements=measurements, verdict=adds.verdict, why=adds.why))
