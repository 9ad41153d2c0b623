"""Watches the jobs of the node for what should be profiled without anybody asking, from what the agent knows of them anyway."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

LEAST_SECONDS = 6 * 3600.0
"""Between two such profiles of a job: a job that stays slow says the same again."""
STEPS = 10
_SAMPLE_SECONDS = 60.0
SLOWER_RATIO = 1.2
"""A step that takes a fifth longer than it used to."""
LEAST_RECENT = 24
"""Minimum number of last steps for a verdict: a few slow steps are not a regression."""
IDLE_RATIO = 0.7
IDLE_SECONDS = 900.0
_MOST_GAP_SECONDS = 120.0
_SAMPLES = int(2 * IDLE_SECONDS / _SAMPLE_SECONDS)


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a job now.

    Attributes:
        recent: seconds of the last steps of its slowest rank here. usual: that a step usually takes, 0: not known.
        activity: how often its GPUs were looked at so far, and the sum of the shares of their multiprocessors that were active.
    """

    recent: tuple[float, ...] = ()
    usual: float = 0.0
    activity: tuple[float, float] = (0.0, 0.0)


class Automatic:
    """Decides for each job. Called by one thread.

    Args:
        measured: what is known of each job now.

    Attributes:
        steps: that a profile of its own is to hold.
    """

    steps = STEPS

    def __init__(self, measured: Callable[[], Mapping[str, Measured]]) -> None:
        self._measured = measured
        self._asked: dict[str, float] = {}
        self._activity: dict[str, deque[tuple[float, float]]] = {}
        self._counted: dict[str, tuple[float, float]] = {}
        self._looked = float("-inf")
        self._now: Mapping[str, Measured] = {}

    def reason(self, job: str, now: float) -> str:
        """Return why a job should be profiled now, or an empty string. After a reason it stays silent for hours. `now` is
        monotonic.
        """
        if now - self._looked >= _SAMPLE_SECONDS:
            self._looked = now
            self._sample(now)
        if now - self._asked.get(job, float("-inf")) < LEAST_SECONDS:
            return ""
        measured = self._now.get(job)
        why = (regression(measured.recent, measured.usual) if measured else "") or idle(tuple(self._activity.get(job, ())))
        if why:
            self._asked[job] = now
        return why

    def _sample(self, now: float) -> None:
        self._now = self._measured()
        for job, measured in self._now.items():
            before, total = self._counted.get(job), measured.activity
            self._counted[job] = total
            if before is None or total[0] < before[0]:
                continue
            if total[0] > before[0]:  # else no rank did steps, or its GPUs said nothing: not known
                series = self._activity.setdefault(job, deque(maxlen=_SAMPLES))
                series.append((now, (total[1] - before[1]) / (total[0] - before[0])))
        for gone in self._counted.keys() - self._now.keys():
            del self._counted[gone]
            self._activity.pop(gone, None)


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
