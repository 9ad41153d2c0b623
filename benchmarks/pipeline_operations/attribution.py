"""Where the time of a step goes that sums: ideal + causes + launch and host delay + unexplained + what the replay misses.

Delay between operations is taken out first and is never a cause: much of it is itself the outcome of waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from benchmarks.pipeline_operations.dependencies import Graph, dependencies
from benchmarks.pipeline_operations.effects import CAUSES, Effects, effects
from benchmarks.pipeline_operations.operations import Array, Operations
from benchmarks.pipeline_operations.simulation import Measured, Timeline, measured, simulate

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.stats.shapley import Shapley, shapley


@dataclass(frozen=True, slots=True)
class Attribution:
    """Seconds of each step, shape (K,) unless said otherwise: `step` = `ideal` + `causes` + `delay` + `unexplained` + `error`.

    Attributes:
        step: as recorded. causes: Shapley values of what operations take themselves. delay: launch and host.
        unexplained: operations of unknown kind beyond what they usually take.
        error: the recorded step minus its replay with all delays. error_ratio: mean of its size over the mean step.
        exposed: of the ideal step, what would be gone if transfers took no time, seconds.
        free_timeline: the steps replayed without delays. ideal_timeline: the ideal step replayed.
    """

    step: Array
    ideal: Array
    causes: Shapley
    delay: Array
    unexplained: Array
    error: Array
    error_ratio: float
    exposed: float
    free_timeline: Timeline
    ideal_timeline: Timeline
    graph: Graph
    times: Measured
    effects: Effects

    @property
    def refusal(self) -> str:
        """Why nothing is attributed, empty if it is."""
        most = threshold("replay_error")
        if self.error_ratio <= most:
            return ""
        return f"the replay of the dependencies misses the recorded steps by {self.error_ratio:.1%}, more than {most:.0%}"

    @property
    def shares(self) -> dict[str, float]:
        """Share of each cause in the gap between the step without delays and the ideal one; they sum to 1; 0 without a gap."""
        means = {cause: float(values.mean()) for cause, values in self.causes.values.items()}
        gap = sum(means.values())
        return {cause: value / gap if gap else 0.0 for cause, value in means.items()}

    def saved(self, *causes: str) -> float:
        """Return the seconds per step saved if only these causes are fixed and the others stay; it can be negative."""
        everything = frozenset(CAUSES)
        return self.causes.coalitions[everything] - self.causes.coalitions[everything - set(causes)]

    def speedup(self, *causes: str) -> float:
        """Return how many times as fast a step is if only these causes are fixed."""
        step = float(self.step.mean())
        return step / max(step - self.saved(*causes), 1e-9)


def attribute(operations: Operations) -> Attribution:
    """Replay the steps and divide their time.

    Raises:
        TachoscopeError: see `dependencies` and `effects`.
    """
    graph = dependencies(operations)
    times = measured(operations, graph)
    found = effects(operations, times)
    count = len(operations.steps)

    def replayed(own: list[Array]) -> Array:
        return np.asarray(np.broadcast_to(simulate(graph, own).step_seconds, (count,)))

    everything = list(times.own)
    step = operations.step_seconds
    whole = simulate(graph, everything, list(times.gap)).step_seconds
    free_timeline = simulate(graph, everything)
    free = free_timeline.step_seconds
    causes = shapley(lambda coalition: replayed(found.own(coalition)), CAUSES)
    ideal = found.own(frozenset())
    return Attribution(
        step=step,
        ideal=causes.none,
        causes=causes,
        delay=whole - free,
        unexplained=free - causes.full,
        error=step - whole,
        error_ratio=float(np.abs(step - whole).mean() / step.mean()) if step.any() else 0.0,
        exposed=float((causes.none - replayed(found.without_transfers(ideal))).mean()),
        free_timeline=free_timeline,
        ideal_timeline=simulate(graph, ideal),
        graph=graph,
        times=times,
        effects=found,
    )
