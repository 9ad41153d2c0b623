"""The ledger and the step time of a run over its steps, as few enough bins of steps in a row for a picture."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.classify import hang
from tachoscope_analyzers.classify.pipeline import attribution
from tachoscope_analyzers.job.classify import Classification
from tachoscope_analyzers.ledger import states as ledger
from tachoscope_analyzers.records import profiled_steps
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.catalogue import TRAINING_STATES, UNEXPLAINED

MOST_BINS = 200


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bins of steps in a row, B of them; arrays have shape (B,).

    Attributes:
        first_step, last_step: numbers of each bin's steps; steps: how many they are.
        ranks: how many they all have. start, end: of the bin, in Unix seconds.
        wall: rank-seconds of all ranks by the clock, from the end of the bin before. states: the same by state; they sum to it.
        p05, p50, p95: quantiles of the step time in seconds.
    """

    first_step: npt.NDArray[np.int64]
    last_step: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    ranks: int
    start: Matrix
    end: Matrix
    wall: Matrix
    states: dict[str, Matrix]
    p05: Matrix
    p50: Matrix
    p95: Matrix


def timeline(decided: Classification, most: int = MOST_BINS) -> Timeline:
    """Return the course of a run in at most so many bins, which hold the same number of steps, give or take one."""
    steps = decided.steps
    edges = bin_edges(len(steps.numbers), most)
    begins, lasts = edges[:-1], edges[1:] - 1
    walls = _binned(steps.wall.sum(axis=1), begins)
    gaps = _binned(_gaps(steps).sum(axis=1), begins)
    calm, hung = hang.without_hangs(steps, decided.hung)
    by_step = ledger.by_step(calm, attribution.waits(calm, decided.losses), hung)
    states = {state: _binned(seconds.sum(axis=1), begins) for state, seconds in by_step.items()}
    states = _summing_to(walls, states)
    states[UNEXPLAINED] = states[UNEXPLAINED] + gaps
    p05, p50, p95 = _quantiles(decided.losses.step, edges)
    return Timeline(
        first_step=steps.numbers[begins],
        last_step=steps.numbers[lasts],
        steps=np.diff(edges),
        ranks=len(steps.ranks),
        start=(steps.unix_ends - steps.wall)[begins].min(axis=1),
        end=steps.unix_ends[lasts].max(axis=1),
        wall=walls + gaps,
        states={state: states[state] for state in TRAINING_STATES if state in states and states[state].any()},
        p05=p05,
        p50=p50,
        p95=p95,
    )


def step_edges(steps: Steps) -> Matrix:
    """Return moments before, between and after the steps in Unix seconds, shape (K + 1,): `within` of two holds the steps between.

    They lie between the middles of the steps, not at their ends: clocks of hosts differ, and ranks do not begin a step together.
    """
    middles = steps.unix_ends - steps.wall / 2
    between = (middles.max(axis=1)[:-1] + middles.min(axis=1)[1:]) / 2
    first, last = (steps.unix_ends - steps.wall)[0].min(), steps.unix_ends[-1].max()
    return np.asarray(np.maximum.accumulate(np.concatenate([[first], between, [last]])))


def bin_edges(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return where at most so many bins of `count` things begin, and where the last one ends."""
    return np.linspace(0, count, min(most, count) + 1).astype(np.int64)


def _binned(seconds: Matrix, begins: npt.NDArray[np.int64]) -> Matrix:
    return np.asarray(np.add.reduceat(seconds, begins))


def _gaps(steps: Steps) -> Matrix:
    """Return the uncovered seconds before each step, shape (K, R); none for steps under a profiler."""
    gaps = np.zeros_like(steps.wall)
    gaps[1:] = np.maximum(steps.ends[1:] - steps.wall[1:] - steps.ends[:-1], 0.0)
    gaps[profiled_steps.steps_after(steps.numbers, steps.profiled)] = 0.0
    return gaps


def _summing_to(walls: Matrix, states: dict[str, Matrix]) -> dict[str, Matrix]:
    """Return the states so that they sum to the wall time of each bin.

    Host and device clocks cut a step at different moments, which vanishes over a run but not over the few steps of a bin: what is
    too much is taken from all states alike, what is missing is unexplained.
    """
    measured = sum(states.values(), np.zeros_like(walls))
    scale = np.minimum(np.divide(walls, measured, out=np.ones_like(walls), where=measured > 0), 1.0)
    scaled = {state: seconds * scale for state, seconds in states.items()}
    scaled[UNEXPLAINED] = scaled[UNEXPLAINED] + np.maximum(walls - measured, 0.0)
    return scaled


def _quantiles(seconds: Matrix, edges: npt.NDArray[np.int64]) -> Matrix:
    parts = [np.quantile(seconds[begin:end], [0.05, 0.5, 0.95]) for begin, end in pairwise(edges)]
    return np.asarray(parts).T
