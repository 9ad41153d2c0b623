"""The curve behind each piece of advice: what one choice brings, over all values that it may take. The formulas are those of the
advice itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tachoscope_analyzers.advice.workers import Input, expected_step, step_with
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, useful_ratio
from tachoscope_analyzers.stats.arrays import Matrix

_SPAN = 30.0
"""The intervals drawn reach so many times below and above the best one."""
_POINTS = 160


def steps_with_workers(found: Input, most: int) -> list[float]:
    """Return the seconds of a step with 0 to `most` loader workers.

    Without workers the step makes its input itself: rest + making. With n of them see `workers.step_with`.
    """
    alone = max(found.rest + found.making, expected_step(found) - found.handover)
    return [alone, *(step_with(found, count) for count in range(1, most + 1))]


def loss_by_interval(saving: SaveCost, between_failures: float, today: float | None = None) -> tuple[Matrix, Matrix]:
    """Return intervals in seconds, evenly spaced on a logarithmic axis about the best one, and the share of time lost at each.

    Args:
        today: an interval that shall be within them.
    """
    best = best_interval(saving, between_failures)
    least = max(min(best, today or best) / _SPAN, saving.shortest, 1e-3)
    most = max(best, today or best) * _SPAN
    intervals = np.unique(np.append(np.geomspace(least, max(most, 2 * least), _POINTS), best))
    return intervals, np.array([1 - useful_ratio(saving, float(one), between_failures) for one in intervals])


def seconds_by_batch(step_seconds: float, idle_seconds: float, factors: Iterable[float]) -> list[float]:
    """Return the seconds that today's batch takes as a part of a batch so many times as large.

    A step lasts as long as its host needs, which is the same, or its device, whose work grows with the batch:
    max(step, factor x (step - idle)) / factor, see `advice.batch`.

    Args:
        idle_seconds: of the step in which the device waits for its host.
    """
    busy = max(step_seconds - idle_seconds, 0.0)
    return [max(step_seconds, factor * busy) / factor for factor in factors]


def enough_batch(step_seconds: float, idle_seconds: float) -> float | None:
    """Return how many times today's batch fill the device, step / (step - idle); None: it works at nothing."""
    busy = step_seconds - idle_seconds
    return step_seconds / busy if busy > 0 else None
