"""What RAS says of a job's communicators, and whether one of them hangs. Knows nothing of sockets and clocks.

Ranks that launched different numbers of collectives are nothing to worry about while these grow: RAS asks them one after another.
Where nothing moves from answer to answer, the ranks that are behind keep the others waiting. A job in which all ranks have launched
the same and none gets on looks like one that does something else meanwhile: that RAS cannot tell.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import msgspec

from tachoscope_core.metrics.nccl import COMMUNICATOR_STATES, MISSING_CONDITIONS

SAFE_VERSION = (2, 28)
MAX_COMMUNICATORS = 4096
FORGET_ANSWERS = 5
"""Processes of several jobs share the port, and any of them may answer: a communicator is gone once so many do not report it."""
MOST_NAMED = 8
_SUCCESS, _IN_PROGRESS = 0, 7
_TOLD = frozenset({"hung", "incomplete", "error"})


class _Status(msgspec.Struct, gc=False):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False


class _Rank(msgspec.Struct, gc=False):
    rank: int
    host: str = ""
    pid: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}


class _MissingStatus(msgspec.Struct, gc=False):
    unresponsive: bool = False
    considered_dead: bool = False


class _Missing(msgspec.Struct, gc=False):
    rank: int
    host: str = ""
    pid: int = -1
    status: _MissingStatus = msgspec.field(default_factory=_MissingStatus)

    @property
    def condition(self) -> str:
        if self.status.considered_dead:
            return "dead"
        return "unresponsive" if self.status.unresponsive else "not_a_member"


class Communicator(msgspec.Struct):
    """One communicator, from those of its ranks that answered."""

    hash: str
    size: int
    secondary_hash: str = ""
    ranks: list[_Rank] = []
    missing_ranks: list[_Missing] = []

    @property
    def key(self) -> str:
        """Both hashes of the communicator, which tell it from all others."""
        return f"{self.hash} {self.secondary_hash}"


class Report(msgspec.Struct):
    """An answer of RAS."""

    nccl_version: str
    communicators: list[Communicator]


_decoder = msgspec.json.Decoder(Report)


def read(answer: bytes) -> Report:
    """Return an answer as a report.

    Raises:
        ValueError: it is none.
    """
    try:
        return _decoder.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def is_safe(version: str) -> bool:
    """Return whether a server of this version may be asked again."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= SAFE_VERSION


@dataclass(slots=True)
class _KnownCommunicator:
    """A communicator over the answers. unchanged: answers in a row in which its ranks disagree as in the one before."""

    counts: int = 0
    unchanged: int = 0
    unseen: int = 0
    state: str = "running"
    missing: tuple[str, ...] = ()


class Communicators:
    """The communicators that RAS told of, from answer to answer.

    Args:
        hung_polls: answers in a row in which a communicator's ranks disagree and nothing moves, from which on it hangs.
    """

    def __init__(self, hung_polls: int) -> None:
        self._hung_polls = hung_polls
        self._known: dict[str, _KnownCommunicator] = {}

    def add_report(self, report: Report) -> list[str]:
        """Take an answer; return a sentence for each communicator that fell into, or came out of, a state that is worth one."""
        sentences = []
        for known in self._known.values():
            known.unseen += 1
        for communicator in report.communicators[:MAX_COMMUNICATORS]:
            known = self._known.setdefault(communicator.key, _KnownCommunicator())
            known.unseen = 0
            self._move(known, communicator)
            before, known.state = known.state, _state(communicator, hung=known.unchanged >= self._hung_polls)
            known.missing = tuple(missing.condition for missing in communicator.missing_ranks)
            if known.state != before and known.state in _TOLD:
                sentences.append(_sentence(communicator, known.state, known.unchanged))
            elif known.state != before and before in _TOLD:
                sentences.append(f"communicator {communicator.hash}: no longer {before}, {known.state}")
        self._known = {key: known for key, known in self._known.items() if known.unseen < FORGET_ANSWERS}
        return sentences

    def _move(self, known: _KnownCommunicator, communicator: Communicator) -> None:
        counts = hash(tuple((rank.rank, *sorted(rank.collective_counts.items())) for rank in communicator.ranks))
        known.unchanged = known.unchanged + 1 if disagree(communicator) and counts == known.counts else 0
        known.counts = counts

    def states(self) -> dict[str, int]:
        """Return how many communicators are in each state."""
        counts = Counter(known.state for known in self._known.values())
        return {state: counts[state] for state in COMMUNICATOR_STATES}

    def missing(self) -> dict[str, int]:
        """Return how many ranks they lack, by condition."""
        counts = Counter(condition for known in self._known.values() for condition in known.missing)
        return {condition: counts[condition] for condition in MISSING_CONDITIONS}


def disagree(communicator: Communicator) -> bool:
    """Return whether the ranks that answered have launched different numbers of collectives."""
    return any(rank.collective_counts != communicator.ranks[0].collective_counts for rank in communicator.ranks)


def _state(communicator: Communicator, *, hung: bool) -> str:
    status = [rank.status for rank in communicator.ranks]
    if any(one.async_error not in (_SUCCESS, _IN_PROGRESS) or one.init_state not in (_SUCCESS, _IN_PROGRESS) for one in status):
        return "error"
    if any(missing.condition != "not_a_member" for missing in communicator.missing_ranks):
        return "incomplete"
    if any(one.init_state == _IN_PROGRESS for one in status):
        return "starting"
    # Who has left it already is not a member any more, and those who have not are behind: neither is a fault.
    if communicator.missing_ranks or any(one.finalize_called or one.destroy_flag or one.abort_flag for one in status):
        return "ending"
    if hung:
        return "hung"
    return "disagreeing" if disagree(communicator) else "running"


def _sentence(communicator: Communicator, state: str, unchanged: int) -> str:
    what = f"communicator {communicator.hash} of {communicator.size} ranks"
    if state == "hung":
        kind, behind, least, most = _behind(communicator)
        return (
            f"{what} hangs: none of its ranks launched anything in {unchanged} answers, and {_named(behind)} "
            f"launched {least} {kind} where others launched {most}: see what keeps them"
        )
    if state == "incomplete":
        missing = [one for one in communicator.missing_ranks if one.condition != "not_a_member"]
        conditions = " and ".join(sorted({one.condition for one in missing}))
        return f"{what} is incomplete: {_named(missing)} {conditions}"
    faulty = [one for one in communicator.ranks if {one.status.async_error, one.status.init_state} - {_SUCCESS, _IN_PROGRESS}]
    codes = sorted({code for one in faulty for code in (one.status.async_error, one.status.init_state)} - {_SUCCESS, _IN_PROGRESS})
    return f"{what} has an error: ncclResult_t {', '.join(map(str, codes))} at {_named(faulty)}"


def _behind(communicator: Communicator) -> tuple[str, list[_Rank], int, int]:
    """Return the kind whose counts are farthest apart, the ranks that launched the fewest, and the fewest and the most."""
    kinds = {kind for rank in communicator.ranks for kind in rank.collective_counts}
    by_kind = {kind: [rank.collective_counts.get(kind, 0) for rank in communicator.ranks] for kind in sorted(kinds)}
    kind = max(by_kind, key=lambda one: max(by_kind[one]) - min(by_kind[one]))
    least = min(by_kind[kind])
    return kind, [rank for rank in communicator.ranks if rank.collective_counts.get(kind, 0) == least], least, max(by_kind[kind])


def _named(ranks: list[_Rank] | list[_Missing]) -> str:
    named = ", ".join(f"rank {rank.rank} (process {rank.pid} on {rank.host[:64]})" for rank in ranks[:MOST_NAMED])
    return named if len(ranks) <= MOST_NAMED else f"{named} and {len(ranks) - MOST_NAMED} more"
