"""How much of a rank's time it hung: no step for much longer than a step takes, and no checkpoint or evaluation that explains it.

It is counted while it lasts, so that the counter moves then; when the late step comes at last, its record says the same time again,
and only what is left of it counts.
"""

from __future__ import annotations

from statistics import median

import msgspec

from tachoscope.supervisor.job_watch import EXCUSED, HANG_STEPS
from tachoscope_core.records.records import StepDone

_IDLE = frozenset({"other", "gc"})


def hung_seconds(without_step: float, recent: list[float], least_seconds: float) -> float:
    """Return how much of a time without a step is too much: all beyond a usual step, once it is ten of them and `least_seconds`.

    Args:
        recent: wall seconds of the last steps.
    """
    if not recent:
        return 0.0
    usual = median(recent)
    return without_step - usual if without_step > max(least_seconds, HANG_STEPS * usual) else 0.0


def all_idle(phases: list[str]) -> bool:
    """Return whether no rank trains or waits for one that does."""
    return bool(phases) and all(phase in _IDLE for phase in phases)


def own_excuse_seconds(step: StepDone) -> float:
    """Return the seconds of a step that may last as long as they last."""
    return sum(step.phase_seconds.get(phase, 0.0) for phase in EXCUSED)


def shortened(step: StepDone, seconds: float) -> StepDone:
    """Return a step of which only so many seconds are left to account: the others are accounted already.

    Checkpoint and evaluation stay as long as they were, if they fit; all else shrinks alike.
    """
    if seconds >= step.wall_seconds:
        return step
    excuse = own_excuse_seconds(step)
    kept = min(excuse, seconds)
    factors = dict.fromkeys(EXCUSED, kept / excuse if excuse else 0.0)
    rest = (seconds - kept) / max(step.wall_seconds - excuse, 1e-12)

    def scaled(table: dict[str, float]) -> dict[str, float]:
        return {phase: value * factors.get(phase, rest) for phase, value in table.items()}

    return msgspec.structs.replace(
        step,
        wall_seconds=seconds,
        phase_seconds=scaled(step.phase_seconds),
        cpu_seconds=scaled(step.cpu_seconds),
        run_delay_seconds=scaled(step.run_delay_seconds),
        device_seconds=scaled(step.device_seconds),
    )
