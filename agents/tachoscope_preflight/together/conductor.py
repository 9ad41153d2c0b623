"""What the first host does: it sets the tasks, gathers the answers, and has them judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tachoscope_analyzers.preflight import clocks
from tachoscope_analyzers.preflight import exchange as judging
from tachoscope_analyzers.preflight.nodes import judge_nodes
from tachoscope_analyzers.preflight.pairs import marked
from tachoscope_analyzers.preflight.report import report
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.report.preflight import Exchange, JudgedMeasurement, PreflightReport, Verdict
from tachoscope_core.storage.preflights import NodeResult
from tachoscope_preflight.alone import MOST_ROUNDS, suspects
from tachoscope_preflight.together import rounds
from tachoscope_preflight.together.meeting import Addition, Answer, Meeting, Task
from tachoscope_preflight.together.member import Member, end

_MEASURE_SECONDS = 180.0
_EXCHANGE_SECONDS = 90.0
_GOODBYE_SECONDS = 30.0
_CLOCK_SECONDS = 30.0
_GRACE_SECONDS, _SLOWER = 30.0, 5.0
"""A host that takes so much longer, and so many times as long, as the first one has stopped: out of memory, or its disk hangs."""
_MOST_SEARCHES = 24
"""Rounds of rings: each that fails takes seconds until all have noticed. One bad link of a thousand hosts takes at most 19."""


class Conductor:
    """The first host. Ranks that do not answer in time are absent from then on."""

    def __init__(self, member: Member, meeting: Meeting, notes: list[str]) -> None:
        self._member, self._meeting, self._notes = member, meeting, notes
        self._like, self._quick = member.line.backend.comparable_with, member.wanted.quick
        self._number = 0
        self._names: dict[int, str] = {0: member.host}
        self._absent: dict[int, str] = {}
        self._results: dict[int, NodeResult] = {}
        self._exchanges: dict[tuple[int, int], Exchange] = {}
        self._ring_error = ""
        self._clocks: list[JudgedMeasurement] = []

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
        self._measure(history, nominal, wait_seconds)
        self._exchange(history, nominal)
        found = self._report(history, nominal, self._ring(history, nominal))
        self._end(found, finish)
        return found

    def _present(self) -> list[int]:
        return [rank for rank in self._names if rank not in self._absent]

    def _gather(self, wait_seconds: float, *, spent_seconds: float) -> None:
        """Wait for the others to come; those that did measure already."""
        seat = self._meeting.seat
        joined = self._meeting.joined(range(1, seat.size), max(wait_seconds - spent_seconds, 1.0))
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
        number = self._set(task)
        return self._answers(number, task, self._member.do(number, task), patience_seconds)

    def _set(self, task: Task) -> int:
        number, self._number = self._number, self._number + 1
        self._meeting.set_task(number, task)
        return number

    def _answers(self, number: int, task: Task, own: Answer, patience_seconds: float) -> dict[int, Answer]:
        found = {0: own}
        others = [rank for rank in self._present() if rank]
        found |= self._meeting.answers(number, others, patience_seconds)
        for rank in set(others) - set(found):
            self._absent[rank] = f"stopped answering: it was to {task.kind}" if task.kind == "measure" else "stopped answering"
        return found

    def _measure(self, history: Sequence[NodeResult], nominal: Mapping[str, float], wait_seconds: float) -> None:
        """Let each host measure as soon as it is there, then what is suspect again, all at one time."""
        began, task = time.monotonic(), Task(kind="measure")
        number = self._set(task)
        own = self._member.do(number, task)
        took = time.monotonic() - began
        self._gather(wait_seconds, spent_seconds=took)
        self._measured(self._answers(number, task, own, _patience(took)))
        self._look_at_clocks()
        for _ in range(MOST_ROUNDS - 1):
            low = suspects([self._results[rank] for rank in self._present()], history, nominal)
            groups = {rank: low.get(self._names[rank], []) for rank in self._present()}
            if not any(groups.values()):
                return
            self._measured(self._task(Task(kind="measure", groups=groups), _patience(took)))

    def _measured(self, answers: Mapping[int, Answer]) -> None:
        self._results |= {rank: answer.result for rank, answer in answers.items() if answer.result is not None}

    def _look_at_clocks(self) -> None:
        began, ticks = time.time(), time.monotonic()
        answers = self._task(Task(kind="clock"), _CLOCK_SECONDS)
        ended = began + time.monotonic() - ticks
        offsets = {self._names[rank]: (one.time - ended, one.time - began) for rank, one in answers.items()}
        self._clocks = clocks.judge(offsets)

    def _exchange(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> None:
        for pairs in rounds.tournament(self._present(), quick=self._quick):
            self._pairs(pairs)
        self._repeat(history, nominal)
        while witnesses := self._witnesses(history, nominal):
            self._pairs(witnesses)
            self._repeat(history, nominal)
        tested, hosts = len({frozenset(key) for key in self._exchanges}), len(self._present())
        if tested < (links := hosts * (hosts - 1) // 2):
            self._notes.append(f"{tested} of {links} links between hosts were tested")

    def _repeat(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> None:
        """Measure bad pairs again, until they are good or were bad in all rounds: each round lets another pair seem slower."""
        while again := sorted({pair for pair, one in self._bad(history, nominal) if one.rounds < _rounds(one)}):
            for pairs in rounds.disjoint(again):
                self._pairs(pairs)

    def _witnesses(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> list[tuple[int, int]]:
        met = {(min(pair), max(pair)) for pair in self._exchanges}
        return rounds.witnessed(self._present(), met, {pair for pair, _ in self._bad(history, nominal)})

    def _bad(self, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> list[tuple[tuple[int, int], Exchange]]:
        """Return the bad pairs, but those of hosts that are unfit by their own tests, which explain them."""
        of = judging.limits(self._named(), history, nominal, self._like)
        results = [self._results[rank] for rank in self._present() if rank in self._results]
        unfit = {one.host for one in judge_nodes(results, history, nominal) if one.verdict == "unfit"}
        able = {rank for rank in self._present() if self._names[rank] not in unfit}
        ranks = {name: rank for rank, name in self._names.items()}
        found = []
        for one in marked(self._named(), of.nominal, of.fleet):
            first, second = sorted((ranks[one.sender], ranks[one.receiver]))
            if one.bad and {first, second} <= able:
                found.append(((first, second), one))
        return found

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
        rates, error = self._rings([ranks])
        if rates[0] is None:
            self._ring_error = self._narrowed(ranks, error)
            self._repeat(history, nominal)
        return rates[0]

    def _rings(self, groups: list[list[int]]) -> tuple[list[float | None], str]:
        """Return for groups without a common host the rate of the slowest link, None if the ring failed, and an error."""
        answers = self._task(Task(kind="rings", rings=groups), _EXCHANGE_SECONDS)
        rates = [[answers[rank].ring if rank in answers else None for rank in group] for group in groups]
        found = [min(of) if None not in of else None for of in rates]  # type: ignore[type-var]
        return found, next((one.error for one in answers.values() if one.error), "no answer")

    def _narrowed(self, ranks: list[int], error: str) -> str:
        """Search for the pairs because of which a ring failed; return the error with what was found.

        What is between two hosts is then measured as any pair, so that a bad link is named. A pair that is well but for its ring is
        only told: who is to blame is not known.
        """
        searching = rounds.search(ranks)
        try:
            groups = next(searching)
            for _ in range(_MOST_SEARCHES):
                present = set(self._present())
                if not all(set(group) <= present for group in groups):
                    return f"{error}; a host stopped answering meanwhile"
                groups = searching.send([rate is None for rate in self._rings(groups)[0]])
        except StopIteration as done:
            for pairs in rounds.disjoint(done.value):
                self._pairs(pairs)
            between = ", ".join(f"{self._names[one]} – {self._names[other]}" for one, other in done.value)
            return f"{error}; between {between}" if between else f"{error}; in smaller groups of the same hosts it did not"
        return f"{error}; it was searched for in {_MOST_SEARCHES} rounds without an end"

    def _report(self, history: Sequence[NodeResult], nominal: Mapping[str, float], ring: float | None) -> PreflightReport:
        return report(
            [self._results[rank] for rank in self._present() if rank in self._results],
            history,
            nominal,
            exchanges=self._named(),
            exchanges_like=self._like,
            clocks=self._clocks,
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
        task = Task(
            kind="end",
            verdicts={rank: verdict_of(found, self._names[rank]) for rank in self._present()},
            adds={rank: self._addition(found, self._names[rank]) for rank in self._present()},
        )
        end(self._member, task, 0, finish)
        self._task(task, _GOODBYE_SECONDS)  # the others read it here: this host may not go before

    def _addition(self, found: PreflightReport, host: str) -> Addition:
        """Return what a host is to store. Where most hosts are unfit it is what they share, and no evidence against each."""
        exchanged = judging.measurements(self._named(), host, self._like)
        own = next((one for one in found.hosts if one.host == host), None)
        shared = sum(one.verdict == "unfit" for one in found.hosts) > len(found.hosts) / 2
        return (
            Addition(exchanged=exchanged)
            if own is None or shared
            else Addition(exchanged=exchanged, verdict=own.verdict, why=own.why)
        )


def verdict_of(found: PreflightReport, host: str) -> Verdict:
    """Return the verdict on a host; the ends of a bad link are unfit together."""
    if any(host in (link.one, link.other) for link in found.links):
        return "unfit"
    return next((one.verdict for one in found.hosts if one.host == host), "not judged")


def _patience(own_seconds: float) -> float:
    """Return how long to wait for others to measure what took the first host so long."""
    return min(_MEASURE_SECONDS, _GRACE_SECONDS + _SLOWER * own_seconds)


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
