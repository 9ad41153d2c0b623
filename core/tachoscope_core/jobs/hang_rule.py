"""When a job hangs: the one rule of all who judge it, live on a node, live over all nodes, and in hindsight.

A job hangs if no rank finished a step for longer than the limit, and a process is stopped or silent, or ranks wait for others.
The limit comes from the job's own steps (`limits_of`): no less than `least`, ten usual steps, and twice a pause that came twice.
Once the job is known it is as short as 10 s where all ranks are seen and those that the others wait for compute nothing and read
nothing, in a phase in which a step computes. A wait for data and what lies between steps keep the whole limit: there pauses come
that were never seen before. Two things there cannot be a pause: a loader worker that is stopped, and a rank that waits for itself:
all its threads and processes wait for each other, or sleep beyond the whole limit.
Where all are in the midst of a step and none waits for another, they load, or wait for data: then it hangs only after
`PATIENCE` times the least limit. It does not hang while a rank saves a checkpoint, evaluates or compiles, since the others wait
for that, unless a process is stopped or silent elsewhere, or saves in silence for as long; and not before the first step, which may
take any time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

LEAST_SECONDS_VARIABLE = "TACHOSCOPE_HANG_SECONDS"
LEAST_SECONDS = 30.0
"""Live, a step may still come: design choice, above what a file system or a compiler makes a step wait for."""
LEAST_SECONDS_IN_HINDSIGHT = 5.0
"""A later step shows that it was not a slow one: design choice, above pauses of the operating system and of a cold file system."""
USUAL_STEPS = 10.0
"""Design choice; NCCL's watchdog waits for 10 min, https://docs.pytorch.org/docs/stable/distributed.html."""
PATIENCE = 20.0
QUICK_SECONDS = 10.0
"""Where nothing moves: design choice, above what garbage collections and writes to a busy disk take."""
KNOWN_STEPS, KNOWN_SECONDS = 32, 30.0
"""So many steps, and so much time of steps, a job is known from."""
PAUSE_TIMES = 2.0
"""A pause may take twice what one took before: design choice."""
_FIRST_STEPS = 2
"""Compiling and connecting take place in them: no measure of later pauses."""
_PAUSES_KEPT, _EXCUSES_KEPT = 4, 8
_EXCUSE_SECONDS = 1.0
"""A checkpoint or an evaluation shorter than this makes no pause of a length that counts."""
SILENT_SECONDS = 15.0
"""A heartbeat comes every 5 s."""
WAITING_PHASES = frozenset({"backward", "collective"})
"""In which a rank waits for others."""
PHASES_WITHOUT_LIMIT = frozenset({"checkpoint", "evaluation", "compile"})
IDLE_PHASES = frozenset({"", "other", "gc"})
"""In which a rank neither trains nor waits for one that does."""
LOADING_PHASE = "data_wait"
PAUSING_PHASES = IDLE_PHASES | {LOADING_PHASE}
"""In which pauses come that were never seen before."""
COMPUTING_PHASES = frozenset({"forward", "loss", "optimizer"})
"""In which a rank neither waits for others nor for data."""


@dataclass(frozen=True, slots=True)
class RankState:
    """A process that has not ended, at the moment of judging.

    Attributes:
        step: the last that it finished. phase: where it was after that, empty: not known. stopped: by a signal.
        silent: it wrote no record for long.
        still: for seconds neither it nor what it started used a core, read or wrote, and it waits for no socket. Not known: False.
        blocked: why it cannot go on: what it waits for is stopped. Empty: it may, or this is not known.
        waits_for_itself: nothing outside of it and of what it started can let it go on before the whole limit. Not known: False.
    """

    rank: int
    writer: str
    step: int
    phase: str
    stopped: bool = False
    silent: bool = False
    still: bool = False
    blocked: str = ""
    waits_for_itself: bool = False


class Pace(msgspec.Struct):
    """How the steps of a job went so far: what its limit comes from. Plain data, which may be saved.

    Attributes:
        steps, seconds: of the job so far; of steps that were not added, about as long as those around them. last, last_seconds: the
            newest step that was added, and how long it took.
        pauses: the longest steps by number. excused: the last steps in which a rank saved or evaluated, which are no pauses.
    """

    steps: int = 0
    seconds: float = 0.0
    last: int = 0
    last_seconds: float = 0.0
    pauses: dict[int, float] = {}
    excused: list[int] = []

    def add(self, step: int, wall_seconds: float, excused_seconds: float = 0.0) -> None:
        """Add a step of a rank; usual steps between two may be left out.

        Ranks pause together, so a step of all of them is one pause. Where one of them saves, all others wait for it.
        """
        if step <= _FIRST_STEPS:  # of the job, or of an attempt
            self.last = step
            return
        if step > self.last:
            left_out = step - self.last - 1 if self.last else 0
            self.steps += 1 + left_out
            self.seconds += wall_seconds + left_out * min(wall_seconds, self.last_seconds)
            self.last, self.last_seconds = step, wall_seconds
        if excused_seconds >= _EXCUSE_SECONDS:
            self.excused = [*self.excused[1 - _EXCUSES_KEPT :], step]
            self.pauses.pop(step, None)
        elif step in self.pauses:
            self.pauses[step] = min(wall_seconds, self.pauses[step])
        elif len(self.pauses) < _PAUSES_KEPT or wall_seconds > min(self.pauses.values()):
            self._add_pause(step, wall_seconds)

    def _add_pause(self, step: int, seconds: float) -> None:
        if step in self.excused:
            return
        self.pauses[step] = seconds
        if len(self.pauses) > _PAUSES_KEPT:
            del self.pauses[min(self.pauses, key=self.pauses.__getitem__)]

    @property
    def is_known(self) -> bool:
        """Whether it tells what the job's pauses are."""
        return self.steps >= KNOWN_STEPS and self.seconds >= KNOWN_SECONDS

    def pause(self, number: int) -> float:
        """Return the longest pause (0), or the one after it (1); 0: there is none."""
        longest = sorted(self.pauses.values(), reverse=True)
        return longest[number] if number < len(longest) else 0.0


@dataclass(frozen=True, slots=True)
class HangLimits:
    """How long no rank has to finish a step for a hang, in seconds.

    Attributes:
        quick: where nothing moves. full: else. patience: where nobody waits for another.
    """

    quick: float
    full: float
    patience: float


def least_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """Return the least limit of who judges live: `$TACHOSCOPE_HANG_SECONDS`, else 30."""
    try:
        given = float(environ.get(LEAST_SECONDS_VARIABLE, ""))
    except ValueError:
        return LEAST_SECONDS
    return given if 0.0 < given < float("inf") else LEAST_SECONDS


def excused_seconds(phase_seconds: Mapping[str, float]) -> float:
    """Return the seconds of a step that may last as long as they last."""
    if phase_seconds.keys().isdisjoint(PHASES_WITHOUT_LIMIT):  # nearly all steps; the agent asks for each
        return 0.0
    return sum(phase_seconds.get(phase, 0.0) for phase in PHASES_WITHOUT_LIMIT)


def usual_step_seconds(walls: Iterable[float]) -> float:
    """Return what a step takes: the median. Raises StatisticsError without any."""
    return median(walls)


def limit_seconds(usual_step: float, least: float, pace: Pace | None = None) -> float:
    """Return how long no rank has to finish a step for a hang, wherever the ranks are.

    Args:
        usual_step: what a step takes. least: limit of short steps. pace: of the job so far; None: not known.
    """
    # What came twice will come again; what came once may have been a hang that passed.
    again = PAUSE_TIMES * pace.pause(1) if pace is not None else 0.0
    return max(least, USUAL_STEPS * usual_step, min(again, PATIENCE * least))


def limits_of(usual_step: float, least: float, pace: Pace | None = None, *, all_seen: bool = False) -> HangLimits:
    """Return the limits of a job.

    Args:
        all_seen: who judges sees all ranks of the job; else what it does not see may be a reason to wait.
    """
    full = limit_seconds(usual_step, least, pace)
    quick = full
    if pace is not None and all_seen and pace.is_known:
        quick = min(full, max(least_quick_seconds(usual_step, least), PAUSE_TIMES * pace.pause(0)))
    return HangLimits(quick, full, PATIENCE * least)


def least_quick_seconds(usual_step: float, least: float) -> float:
    """Return the least limit where nothing moves, of a job whose pauses are not known here."""
    return max(min(QUICK_SECONDS, least), USUAL_STEPS * usual_step)


def is_hang(ranks: Collection[RankState], without_step_seconds: float, limits: HangLimits) -> bool:
    """Return whether ranks that finish no step hang.

    Args:
        without_step_seconds: since the last step of any of them.
    """
    if without_step_seconds <= limits.quick or (without_step_seconds <= limits.full and not nothing_moves(ranks)):
        return False
    lost_patience = without_step_seconds > limits.patience
    if any(
        rank.stopped or rank.blocked or (rank.silent and (lost_patience or rank.phase not in PHASES_WITHOUT_LIMIT))
        for rank in ranks
    ):
        return True
    phases = {rank.phase for rank in ranks}
    if phases & PHASES_WITHOUT_LIMIT or phases <= IDLE_PHASES:
        return False
    return bool(phases & WAITING_PHASES) or lost_patience


def nothing_moves(ranks: Collection[RankState]) -> bool:
    """Return whether one rank is stopped or blocked, or others wait for ranks that cannot go on.

    These stand still in a phase in which a step computes, or wait for themselves. Where all wait for each other, all stand still.
    """
    if any(rank.stopped or rank.blocked for rank in ranks):
        return True
    if any(rank.phase in PHASES_WITHOUT_LIMIT for rank in ranks):
        return False
    if any(rank.silent and rank.still and rank.phase in COMPUTING_PHASES | WAITING_PHASES | {""} for rank in ranks):
        return True
    waiting = [rank for rank in ranks if rank.phase in WAITING_PHASES]
    others = [rank for rank in ranks if rank.phase not in WAITING_PHASES]
    if len(ranks) < 2 or not waiting:
        return False
    if not others:
        return all(rank.still for rank in waiting)
    return all(rank.waits_for_itself or (rank.still and rank.phase in COMPUTING_PHASES) for rank in others)


def all_idle(phases: Collection[str]) -> bool:
    """Return whether no rank trains or waits for one that does, as far as is known."""
    return bool(phases) and all(phase and phase in IDLE_PHASES for phase in phases)


def stuck_rank(
    ranks: Sequence[RankState], gone: Sequence[tuple[int, str]] = (), *, all_seen: bool = True
) -> tuple[tuple[int, str] | None, str]:
    """Return rank and writer of the process that the others wait for, None if it cannot be determined, and why.

    Args:
        gone: rank and writer of processes of the attempt that died. all_seen: these are all ranks of the job; else one that waits
            may wait for one that is not seen.
    """
    named, why = _stuck_of(ranks, gone)
    waits = any(_named(rank) == named and rank.phase in WAITING_PHASES and not (rank.stopped or rank.silent) for rank in ranks)
    if named is not None and waits and not all_seen:
        return None, f"rank {named[0]} waits for others, and not all ranks of the job are on this host"
    return named, why


def _stuck_of(ranks: Sequence[RankState], gone: Sequence[tuple[int, str]]) -> tuple[tuple[int, str] | None, str]:
    for rank in ranks:
        if rank.stopped:
            return _named(rank), "its process is stopped by a signal"
    if gone:
        return gone[0], "its process has ended"
    for rank in ranks:
        if rank.blocked:
            return _named(rank), rank.blocked
    silent = [rank for rank in ranks if rank.silent]
    if len(silent) == 1:
        return _named(silent[0]), f"its process wrote nothing for more than {SILENT_SECONDS:.0f} s"
    if len(ranks) == 1:
        return _named(ranks[0]), f"it is in {ranks[0].phase or 'an unknown phase'}"
    most = max(rank.step for rank in ranks)
    behind = [rank for rank in ranks if rank.step < most]
    if len(behind) == 1:
        return _named(behind[0]), f"it finished {behind[0].step} steps, the others {most}"
    ahead = [rank for rank in ranks if rank.step == most]
    if len(ranks) > 2 and len(ahead) == 1 and {rank.phase for rank in behind} == {"collective"}:
        why = f"it finished {most} steps; the others wait in a collective before that: it left it out or gave less"
        return _named(ahead[0]), why
    apart = [rank for rank in ranks if rank.phase not in WAITING_PHASES]
    if len(apart) == 1:
        return _named(apart[0]), f"it is in {apart[0].phase or 'an unknown phase'}, the others wait"
    if not apart:
        return None, "all ranks of this host wait for others; if there are more hosts, it is on one of them"
    return None, f"{len(apart)} of {len(ranks)} ranks do not wait"


def _named(rank: RankState) -> tuple[int, str]:
    return rank.rank, rank.writer
