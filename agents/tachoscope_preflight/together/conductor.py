"""What the first host does: it sets the tasks, gathers the answers, and has them judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tachoscope_analyzers.preflight import exchange as judging
from tachoscope_analyzers.preflight.pairs import marked
from tachoscope_analyzers.preflight.report import report
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.report.preflight import Exchange, PreflightReport, Verdict
from tachoscope_core.storage.preflights import NodeResult
from tachoscope_preflight.alone import MOST_ROUNDS, suspects
from tachoscope_preflight.together import rounds
from tachoscope_preflight.together.meeting import Answer, Meeting, Task
from tachoscope_preflight.together.member import Member, end

_MEASURE_SECONDS = 180.0
_EXCHANGE_SECONDS = 90.0
_GOODBYE_SECONDS = 30.0


class Conductor:
    """The first host. Ranks that do not answer in time are absent from then on."""

    def __init__(self, member: Member, meeting: Meeting, exchanges_like: str, notes: list[str]) -> None:
        self._member, self._meeting, self._like, self._notes = member, meeting, exchanges_like, notes
        self._number = 0
        self._names: dict[int, str] = {0: member.host}
        self._absent: dict[int, str] = {}
        self._results: dict[int, NodeResult] = {}
        self._exchanges: dict[tuple[int, int], Exchange] = {}
        self._ring_error = ""

    def conduct(
        self,
        history: Sequence[NodeResult],
        nominal: Mapping[str, float],
        wait_seconds: float,
        finish: Callable[[NodeResult], None],
    ) -> PreflightReport:
        """Let all hosts measure and exchange; return the report.

        Raises:
            TachoscopeError: two ranks are on one host.
        """
        self._gather(wait_seconds)
        self._measure(history, nominal)
        self._exchange(history, nominal)
        found = self._report(history, nominal, self._ring(history, nominal))
        self._end(found, finish)
        return found

    def _present(self) -> list[int]:
        return [rank for rank in self._names if rank not in self._absent]

    def _gather(self, wait_seconds: float) -> None:
        seat = self._meeting.seat
        joined = self._meeting.joined(range(1, seat.size), wait_seconds)
        self._names |= joined
        for rank in set(range(1, seat.size)) - set(joined):
            self._names[rank] = seat.name(rank)
            self._absent[rank] = f"did not come within {wait_seconds:g} s"
        names = [self._names[rank] for rank in self._present()]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            error = f"several ranks are on {twice}: start one on each host, with host names that differ"
            self._meeting.set_task(self._number, Task(kind="stop", error=error))
            raise TachoscopeError(error, exit_code=ExitCode.NOT_WELL)

    def _task(self, task: Task, patience_seconds: float) -> dict[int, Answer]:
        """Set a task, do the own part, and return the answers."""
        number, self._number = self._number, self._number + 1
        self._meeting.set_task(number, task)
        found = {0: self._member.do(number, task)}
        others = [rank for rank in self._present() if rank]
        found |= self._meeting.answers(number, others, patience_seconds)
        for rank in set(others) - set(found):
            self._absent[rank] = f"stopped answering: it was to {task.kind}" if task.kind == "measure" else "stopped answering"
        return found

    def _measure(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> None:
        self._results = self._measured(Task(kind="measure"))
        for _ in range(MOST_ROUNDS - 1):
            low = suspects([self._results[rank] for rank in self._present()], history, nominal)
            groups = {rank: low.get(self._names[rank], []) for rank in self._present()}
            if not any(groups.values()):
                return
            self._results |= self._measured(Task(kind="measure", groups=groups))

    def _measured(self, task: Task) -> dict[int, NodeResult]:
        answers = self._task(task, _MEASURE_SECONDS)
        return {rank: answer.result for rank, answer in answers.items() if answer.result is not None}

    def _exchange(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> None:
        for pairs in rounds.tournament(self._present()):
            self._pairs(pairs)
        while suspect := self._suspect_pairs(history, nominal):
            for pairs in rounds.disjoint(sorted(suspect)):
                self._pairs(pairs)

    def _suspect_pairs(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> set[tuple[int, int]]:
        """Return the pairs that are bad and were measured in less than all rounds: each round lets another pair seem slower."""
        least = judging.limits(self._named(), history, nominal, self._like).least
        present = set(self._present())
        bad = [one for one in marked(list(self._exchanges.values()), least) if one.bad and one.rounds < _rounds(one)]
        return {pair for pair in map(self._ranks, bad) if set(pair) <= present}

    @staticmethod
    def _ranks(one: Exchange) -> tuple[int, int]:
        first, second = sorted((int(one.sender), int(one.receiver)))
        return first, second

    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        present = set(self._present())
        pairs = [pair for pair in pairs if set(pair) <= present]
        if not pairs:
            return
        answers = self._task(Task(kind="pairs", pairs=pairs), _EXCHANGE_SECONDS)
        for one in (one for answer in answers.values() for one in answer.exchanges):
            key = (int(one.sender), int(one.receiver))
            before = self._exchanges.get(key)
            self._exchanges[key] = one if before is None else _better(before, one)

    def _ring(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> float | None:
        """Return the rate of a ring of all hosts that are not named so far; None: it was not made, or failed."""
        so_far = self._report(history, nominal, None)
        bad = {one.host for one in so_far.hosts if one.verdict == "unfit"}
        ranks = [rank for rank in self._present() if self._names[rank] not in bad]
        if len(ranks) < 2 or so_far.links:
            self._notes.append("the ring was not made: too few hosts are fit, or a link is bad")
            return None
        answers = self._task(Task(kind="ring", ring=ranks), _EXCHANGE_SECONDS)
        rates = [answers[rank].ring for rank in ranks if rank in answers]
        found = [rate for rate in rates if rate is not None]
        if len(found) < len(ranks):
            self._ring_error = next((one.error for one in answers.values() if one.error), "no answer")
            return None
        return min(found)

    def _report(self, history: Sequence[NodeResult], nominal: Mapping[str, float], ring: float | None) -> PreflightReport:
        return report(
            [self._results[rank] for rank in self._present() if rank in self._results],
            history,
            nominal,
            exchanges=self._named(),
            exchanges_like=self._like,
            absent={self._names[rank]: why for rank, why in sorted(self._absent.items())},
            ring_bytes_per_second=ring,
            ring_error=self._ring_error,
            notes=self._notes,
        )

    def _named(self) -> list[Exchange]:
        """Return the exchanges between hosts that are still there, with their names."""
        kept = [one for key, one in sorted(self._exchanges.items()) if not set(key) & set(self._absent)]
        names = self._names
        return [msgspec.structs.replace(one, sender=names[int(one.sender)], receiver=names[int(one.receiver)]) for one in kept]

    def _end(self, found: PreflightReport, finish: Callable[[NodeResult], None]) -> None:
        exchanges = self._named()
        task = Task(
            kind="end",
            verdicts={rank: verdict_of(found, self._names[rank]) for rank in self._present()},
            exchanged={rank: judging.measurements(exchanges, self._names[rank], self._like) for rank in self._present()},
        )
        end(self._member, task, 0, finish)
        self._task(task, _GOODBYE_SECONDS)  # the others read it here: this host may not go before


def verdict_of(found: PreflightReport, host: str) -> Verdict:
    """Return the verdict on a host; the ends of a bad link are unfit together."""
    if any(host in (link.one, link.other) for link in found.links):
        return "unfit"
    return next((one.verdict for one in found.hosts if one.host == host), "not judged")


def _rounds(one: Exchange) -> int:
    """Return in how many rounds a pair has to be bad; one that fails takes long each time, and is tried twice."""
    return 2 if one.error else MOST_ROUNDS


def _better(one: Exchange, other: Exchange) -> Exchange:
    rates = {
        name: max((rate for rate in (getattr(one, name), getattr(other, name)) if rate is not None), default=None)
        for name in ("bytes_per_second", "round_trips_per_second")
    }
    error = one.error and other.error
    return msgspec.structs.replace(other, **rates, error=error, rounds=one.rounds + 1)
