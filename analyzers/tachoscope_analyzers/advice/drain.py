"""Which host or device to look at and drain: where the late ranks run, how sure that is, and what they cost all the others.

In synchronous training every rank waits for the late one, so an hour of it costs ranks x share rank-hours. One run cannot tell a
slow machine from slow work of that rank; a swap can, as DLRover's node check does in two rounds of pairs
(https://github.com/intelligent-machine-learning/dlrover).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tachoscope_analyzers.advice.number_text import count, named_ranks, number, time
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.stats.arrays import Matrix

_WINDOWS = 10
_LEAST_STEPS = 3
"""Of a window: fewer are chance."""
_MOST_HOSTS = 2


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Where a rank runs; device: the UUID of its GPU, empty for none or not known."""

    host: str
    local_rank: int
    device: str = ""


@dataclass(frozen=True, slots=True)
class LateRanks:
    """Ranks that are late.

    Attributes:
        ranks: which; all_ranks: number of all. places: by rank, of all that are known.
        lost, step: mean seconds per step, of the loss and of the whole.
        late_windows, windows: of the run: in how many the loss is one, and how many there are.
    """

    ranks: Sequence[int]
    all_ranks: int
    places: Mapping[int, RankPlacement]
    lost: float
    step: float
    late_windows: int
    windows: int


def windows_with_the_loss(lost: Matrix, step: Matrix) -> tuple[int, int]:
    """Return in how many of ten equal windows of the run a loss is one, and how many windows there are; fewer in a short run.

    Args:
        lost, step: seconds of each step, shape (K,).
    """
    windows = max(1, min(_WINDOWS, len(step) // _LEAST_STEPS))
    bounds = [round(place * len(step) / windows) for place in range(windows + 1)]
    least = threshold("warning_share")
    late = sum(bool(lost[start:end].sum() >= least * step[start:end].sum()) for start, end in pairwise(bounds))
    return late, windows


def rank_hours_an_hour(late: LateRanks) -> float:
    """Return the rank-hours that all ranks together lose in an hour: ranks x lost / step."""
    return late.all_ranks * late.lost / late.step


def advice(late: LateRanks) -> str:
    """Return who is late and where, for how long, what it costs, and the first reversible step; empty where no place is known."""
    if not late.ranks or not set(late.ranks) <= late.places.keys():
        return ""
    lost = f"{late.all_ranks} ranks x {time(late.lost)} / {time(late.step)} = {number(rank_hours_an_hour(late), 2)} rank-hours"
    seen = f"late in {late.late_windows} of {count(late.windows, 'part')} of the run"
    return f"{_who(late)}: {seen}, costs {lost} an hour. {_first_step(late)}"


def _hosts(late: LateRanks) -> list[str]:
    return sorted({late.places[rank].host for rank in late.ranks})


def _whole_hosts(late: LateRanks) -> bool:
    """Return whether the late ranks are all the ranks of their hosts, and others run elsewhere."""
    hosts = set(_hosts(late))
    there = {rank for rank, place in late.places.items() if place.host in hosts}
    return there == set(late.ranks) and len(there) > 1 and len(there) < late.all_ranks


def _who(late: LateRanks) -> str:
    ranks, hosts = named_ranks(late.ranks), _hosts(late)
    where = ", ".join(hosts[:_MOST_HOSTS]) + (", ..." if len(hosts) > _MOST_HOSTS else "")
    if _whole_hosts(late):
        return f"{ranks}, all of {where}"
    if len(late.ranks) > 1:
        return f"{ranks} on {where}"
    place = late.places[late.ranks[0]]
    return f"{ranks} (host {place.host}, local rank {place.local_rank}{', GPU ' + place.device if place.device else ''})"


def _first_step(late: LateRanks) -> str:
    others = {place.host for place in late.places.values()} - set(_hosts(late))
    if _whole_hosts(late):
        return "Start the job without what is named here: if it is faster then, drain it"
    if any(late.places[rank].device for rank in late.ranks):
        with_ = f"one on {min(others)}" if others else "another of its host"
        return f"Swap its device with {with_}: if the same device is late again, drain it; if the rank is, look at its work"
    if others:
        return f"Swap it with a rank on {min(others)}: if the same host is late again, drain it; if the rank is, look at its work"
    return "Pin it to other cores of the host: if it is late there too, look at its work"
