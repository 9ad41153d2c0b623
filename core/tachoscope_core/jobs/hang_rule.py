"""When a job hangs: the one rule of all who judge it, live on a node, live over all nodes, and in hindsight.

A job hangs if no rank finished a step for longer than the limit, and a process is stopped or silent, or ranks wait for others.
Where all are in the midst of a step and none waits for another, they compile, or wait for data: then it hangs only after
`PATIENCE` times the least limit. It does not hang while a rank saves a checkpoint or evaluates, since the others wait for that,
unless a process is stopped or silent elsewhere, or saves in silence for as long; and not before the first step, which may take any
time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

LEAST_SECONDS_VARIABLE = "TACHOSCOPE_HANG_SECONDS"
LEAST_SECONDS = 30.0
"""Live, a step may still come: design choice, above what a file system or a compiler makes a step wait for."""
LEAST_SECONDS_IN_HINDSIGHT = 5.0
"""A later step shows that it was not a slow one: design choice, above pauses of the operating system and of a cold file system."""
USUAL_STEPS = 10.0
"""Design choice; NCCL's watchdog waits for 10 min, https://docs.pytorch.org/docs/stable/distributed.html."""
PATIENCE = 20.0
SILENT_SECONDS = 15.0
"""A heartbeat comes every 5 s."""
WAITING_PHASES = frozenset({"backward", "collective"})
"""In which a rank waits for others."""
PHASES_WITHOUT_LIMIT = frozenset({"checkpoint", "evaluation"})
IDLE_PHASES = frozenset({"", "other", "gc"})
"""In which a rank neither trains nor waits for one that does."""


@dataclass(frozen=True, slots=True)
class RankState:
    """A process that has not ended, at the moment of judging.

    Attributes:
        step: the last that it finished. phase: where it was after that, empty: not known. stopped: by a signal.
        silent: it wrote no record for long.
    """

    rank: int
    writer: str
    step: int
    phase: str
    stopped: bool = False
    silent: bool = False


def least_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """Return the least limit of who judges live: `$TACHOSCOPE_HANG_SECONDS`, else 30."""
    try:
        given = float(environ.get(LEAST_SECONDS_VARIABLE, ""))
    except ValueError:
        return LEAST_SECONDS
    return given if 0.0 < given < float("inf") else LEAST_SECONDS


def usual_step_seconds(walls: Iterable[float]) -> float:
    """Return what a step takes: the median. Raises StatisticsError without any."""
    return median(walls)


def limit_seconds(usual_step: float, least: float) -> float:
    """Return how long no rank has to finish a step for a hang."""
    return max(least, USUAL_STEPS * usual_step)


def is_hang(ranks: Collection[RankState], without_step_seconds: float, usual_step: float, least: float) -> bool:
    """Return whether ranks that finish no step hang.

    Args:
        without_step_seconds: since the last step of any of them. usual_step: what a step takes. least: limit of short steps.
    """
    if without_step_seconds <= limit_seconds(usual_step, least):
        return False
    lost_patience = without_step_seconds > PATIENCE * least
    if any(rank.stopped or (rank.silent and (lost_patience or rank.phase not in PHASES_WITHOUT_LIMIT)) for rank in ranks):
        return True
    phases = {rank.phase for rank in ranks}
    if phases & PHASES_WITHOUT_LIMIT or phases <= IDLE_PHASES:
        return False
    return bool(phases & WAITING_PHASES) or lost_patience


def all_idle(phases: Collection[str]) -> bool:
    """Return whether no rank trains or waits for one that does, as far as is known."""
    return bool(phases) and all(phase and phase in IDLE_PHASES for phase in phases)


def stuck_rank(ranks: Sequence[RankState], gone: Sequence[tuple[int, str]] = ()) -> tuple[tuple[int, str] | None, str]:
    """Return rank and writer of the process that the others wait for, None if it cannot be determined, and why.

    Args:
        gone: rank and writer of processes of the attempt that died.
    """
    for rank in ranks:
        if rank.stopped:
            return _named(rank), "its process is stopped by a signal"
    if gone:
        return gone[0], "its process has ended"
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
