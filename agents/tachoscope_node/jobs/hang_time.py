"""How much of a rank's time it hung: no step for much longer than a step takes, and no checkpoint, evaluation or
compilation that explains it.

It is counted while it lasts, so that the counter moves then; when the late step comes at last, its record says the same time again,
and only what is left of it counts.
"""

from __future__ import annotations

import msgspec

from tachoscope_core.jobs.hang_rule import PHASES_WITHOUT_LIMIT, Pace, excused_seconds, limit_seconds, usual_step_seconds
from tachoscope_core.records.records import StepDone


def hung_seconds(without_step: float, recent: list[float], least_seconds: float, pace: Pace) -> float:
    """Return how much of a time without a step is too much: all beyond a usual step, once the time is beyond the limit.

    Args:
        recent: wall seconds of the last steps. pace: of the job's steps so far.
    """
    if not recent:
        return 0.0
    usual = usual_step_seconds(recent)
    return without_step - usual if without_step > limit_seconds(usual, least_seconds, pace) else 0.0


def shortened(step: StepDone, seconds: float) -> StepDone:
    """Return a step of which only so many seconds are left to account: the others are accounted already.

    Checkpoint, evaluation and compiling stay as long as they were, if they fit; all else shrinks alike.
    """
    if seconds >= step.wall_seconds:
        return step
    excuse = excused_seconds(step.phase_seconds)
    kept = min(excuse, seconds)
    factors = dict.fromkeys(PHASES_WITHOUT_LIMIT, kept / excuse if excuse else 0.0)
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
