"""When a job is profiled without anybody having asked: its steps became slower, or its GPUs have had little to do for long.

Knows nothing of agents and stores: takes what was measured, says why or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

SLOWER_RATIO = 1.2
"""A step that takes a fifth longer than it used to."""
LEAST_RECENT = 24
"""So many of the last steps have to tell: a few slow ones are no regression."""
IDLE_RATIO = 0.7
IDLE_SECONDS = 900.0
_MOST_GAP_SECONDS = 120.0


def regression(recent: Sequence[float], usual: float) -> str:
    """Say why the last steps are a regression, or nothing.

    Args:
        recent: seconds of the last steps. usual: seconds that a step of the same attempt usually takes; 0: not known.
    """
    if len(recent) < LEAST_RECENT or usual <= 0.0:
        return ""
    now = median(recent)
    if now < SLOWER_RATIO * usual:
        return ""
    return f"a step takes {now:.3g} s (median of the last {len(recent)}), {now / usual:.2f} times the usual {usual:.3g} s"


def idle(activity: Sequence[tuple[float, float]]) -> str:
    """Say why the GPUs of a job have too little to do, or nothing.

    Args:
        activity: times in seconds and the mean share of active multiprocessors since the one before, in order of time.
    """
    if not activity:
        return ""
    last = activity[-1][0]
    within = [(at, share) for at, share in activity if at >= last - IDLE_SECONDS - _MOST_GAP_SECONDS]
    if within[0][0] > last - IDLE_SECONDS:
        return ""  # not known for so long
    gaps = [after - before for (before, _), (after, _) in pairwise(within)]
    shares = [share for at, share in within if at > last - IDLE_SECONDS]
    if not shares or max(gaps, default=0.0) > _MOST_GAP_SECONDS or max(shares) >= IDLE_RATIO:
        return ""
    most = f"at most {max(shares):.0%} of the GPUs' multiprocessors were active"
    return f"for {IDLE_SECONDS / 60:.0f} minutes {most}, below {IDLE_RATIO:.0%}"
