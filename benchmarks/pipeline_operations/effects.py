"""What each cause adds to what operations take themselves, over an ideal step. Waiting is not a cause: the replay makes it again.

Computing of chunk g on replica d, step k and micro-batch b takes  ideal x stage_g x worker_gd x data_kdb + pause_gkdb:
the ideal is the mean over chunks (work can be moved, not removed) of what a usual worker takes, without those that are far from
the median of the replicas, so that one bad worker does not spoil it; `stage` is what that worker of the chunk takes more, `worker`
what a worker takes more than it, always and not by chance, `data` what is the same for all computing of a micro-batch, and what is
left happens to one operation: a pause, or jitter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.pipeline_operations.kinds import COLLECTIVES, COMMUNICATION, COMPUTE, KNOWN, OWN_WORK, PAUSE
from benchmarks.pipeline_operations.operations import Array, Operations
from benchmarks.pipeline_operations.simulation import Measured

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_core.errors import TachoscopeError

CAUSES = ("stage", "worker", "data", "pauses", "communication", "rest")
"""The players: which stage, which worker, what the data are, pauses of the host, slow transfers, the optimizer and the rest."""


FAR = 6.0
"""Design choice: an operation that is this many standard deviations too long, by the median absolute deviation, is a pause."""
CHANCE = 3.0
"""Design choice: a mean that is less than three standard errors away differs by chance, one time in 400 with normal errors."""


@dataclass(frozen=True, slots=True)
class Computing:
    """Durations of computing, with two types t (forward, backward), G chunks and M micro-batches; seconds or factors.

    Attributes:
        number: of each operation, shape (2, G, M). ideal: by type, shape (2,). stage: shape (2, G). worker: shape (2, G, D).
        data: factor of a micro-batch, shape (2, G, M, K, D). pauses: seconds, of that shape.
        alike: correlation of forward and backward over micro-batches; where it is low nothing is of the data.
    """

    number: npt.NDArray[np.int64]
    ideal: Array
    stage: Array
    worker: Array
    data: Array
    pauses: Array
    alike: float


@dataclass(frozen=True, slots=True)
class Effects:
    """All causes of all operations.

    Attributes:
        typical: what the operations that are no computing usually take, shape (N,). measured: what all took, shape (N, K, D).
        communication, pauses, rest, unknown: numbers of the operations of these kinds; none knows what `unknown` ones are.
    """

    computing: Computing
    typical: Array
    measured: Array
    communication: npt.NDArray[np.int64]
    pauses: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]
    unknown: npt.NDArray[np.int64]

    def own(self, causes: frozenset[str]) -> list[Array]:
        """Return what each of the N operations takes when only these causes are there, each broadcast to (K, D)."""
        parts = self.computing
        taken: list[Array] = [np.full((1, 1), value) for value in self.typical]
        for (kind, chunk, batch), number in np.ndenumerate(parts.number):
            seconds = parts.ideal[kind] * (parts.stage[kind, chunk] if "stage" in causes else 1.0)
            factor: Array = parts.worker[kind, chunk][None, :] if "worker" in causes else np.ones((1, 1))
            if "data" in causes:
                factor = factor * parts.data[kind, chunk, batch]
            value = seconds * factor
            taken[number] = np.maximum(value + parts.pauses[kind, chunk, batch], 0.0) if "pauses" in causes else value
        for cause, numbers in (("communication", self.communication), ("pauses", self.pauses), ("rest", self.rest)):
            if cause in causes:
                for number in numbers.tolist():
                    taken[number] = self.measured[number]
        return taken

    def without_transfers(self, own: list[Array]) -> list[Array]:
        """Return the same with transfers that take no time."""
        free = list(own)
        for number in self.communication.tolist():
            free[number] = np.zeros((1, 1))
        return free


def effects(operations: Operations, times: Measured) -> Effects:
    """Return what each cause adds.

    Raises:
        TachoscopeError: a chunk lacks the computing of a micro-batch.
    """
    typical = np.zeros(len(operations.each))
    for numbers in _sisters(operations):
        # The lower median: of two groups that differ, the one that is not slow.
        typical[numbers] = _lower_median(np.median(times.own[numbers], axis=(1, 2)), 0)
    known = np.array([one.optype in KNOWN for one in operations.each])
    return Effects(
        computing=computing(operations, times),
        typical=typical,
        measured=times.own,
        communication=operations.of(*COMMUNICATION),
        pauses=operations.of(PAUSE),
        rest=operations.of(*OWN_WORK),
        unknown=np.flatnonzero(~known),
    )


def _sisters(operations: Operations) -> list[npt.NDArray[np.int64]]:
    """Return the operations that should take equally long: those of a type, of collectives also of the same number."""
    found: dict[tuple[str, int], list[int]] = {}
    for number, one in enumerate(operations.each):
        if one.optype not in COMPUTE:
            found.setdefault((one.optype, one.number if one.optype in COLLECTIVES else -1), []).append(number)
    return [np.array(numbers) for numbers in found.values()]


def computing(operations: Operations, times: Measured) -> Computing:
    """Divide the durations of computing.

    Raises:
        TachoscopeError: a chunk lacks the computing of a micro-batch.
    """
    number = _numbers(operations)
    seconds = times.own[number]  # (2, G, M, K, D)
    steady = seconds - _single(seconds)
    usual, level = _levels(steady)
    ideal = usual.mean(axis=1)
    relative = _ratio(steady, _spread(level))
    common = np.median(relative, axis=1)
    alike = rank_correlation(common[0].ravel(), common[1].ravel())
    known = alike >= threshold("forward_backward_correlation")
    data = _shared(relative, np.median(_places(relative), axis=0)) if known else np.ones_like(relative)
    return Computing(
        number=number,
        ideal=ideal,
        stage=_ratio(usual, ideal[:, None]),
        worker=_ratio(level, usual[:, :, None]),
        data=data,
        pauses=seconds - _spread(level) * data,
        alike=alike,
    )


def _single(seconds: Array) -> Array:
    """Return by how much single operations are longer than the others of their micro-batch let expect, shape (2, G, M, K, D).

    Against the lower median over types and chunks: what is long in one place only is not of the micro-batch.
    """
    level = _spread(np.median(seconds, axis=(2, 3)))
    relative = _ratio(seconds, level)
    left = seconds - level * _shared(relative, _lower_median(_places(relative), 0))
    left -= np.median(left)
    return np.where(left > FAR * deviation(left), left, 0.0)


def _spread(level: Array) -> Array:
    """Return values of shape (2, G, D) as they are broadcast to (2, G, M, K, D)."""
    return level[:, :, None, None, :]


def _places(relative: Array) -> Array:
    """Return the places of the micro-batches in the order of length that each type and chunk sees, shape (2 G, M K D).

    In places, since lengths cost each type and chunk something else, such as their square; longer is longer in all.
    """
    flat = relative.reshape(relative.shape[0] * relative.shape[1], -1)
    return np.asarray(flat.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable"), dtype=np.float64)


def _shared(relative: Array, places: Array) -> Array:
    """Return what micro-batches at these places, shape (M K D,), take of each type and chunk, shape (2, G, M, K, D)."""
    flat = relative.reshape(relative.shape[0] * relative.shape[1], -1)
    taken = np.sort(flat, axis=1)[:, np.rint(places).astype(np.int64)]
    return np.asarray((taken * _ratio(flat.mean(axis=1), taken.mean(axis=1))[:, None]).reshape(relative.shape))


def rank_correlation(one: Array, other: Array) -> float:
    """Return Spearman's correlation, by ranks so that single pauses do not matter; 0 where one of them does not vary."""
    if np.ptp(one) < 1e-12 or np.ptp(other) < 1e-12:
        return 0.0
    return float(np.corrcoef(one.argsort().argsort(), other.argsort().argsort())[0, 1])


def _levels(seconds: Array) -> tuple[Array, Array]:
    """Return what a worker usually takes by type and chunk, shape (2, G), and what each takes, shape (2, G, D).

    A worker is its own where its mean differs from the lower median of the means by more than chance; the others have their mean.
    """
    mean = seconds.mean(axis=(2, 3))
    error = seconds.std(axis=(2, 3)) / np.sqrt(seconds.shape[2] * seconds.shape[3])
    middle = _lower_median(mean, 2)[:, :, None]
    # The difference of two means, each with about this error.
    apart = np.abs(mean - middle) > CHANCE * np.sqrt(2.0) * np.median(error, axis=2, keepdims=True)
    usual = np.mean(mean, axis=2, where=~apart)
    return usual, np.where(apart, mean, usual[:, :, None])


def deviation(values: Array) -> float:
    """Return the standard deviation as the median absolute deviation tells it, 1.4826 times that for a normal distribution."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _numbers(operations: Operations) -> npt.NDArray[np.int64]:
    """Return the numbers of computing by type, chunk and micro-batch, shape (2, G, M)."""
    batches = sorted({one.batch for one in operations.each if one.optype in COMPUTE})
    if not batches:
        raise TachoscopeError("the recording holds no forward-compute and no backward-compute", fix="record computing too")
    number = np.full((len(COMPUTE), operations.chunks, len(batches)), -1, dtype=np.int64)
    for index, one in enumerate(operations.each):
        if one.optype in COMPUTE:
            if not 0 <= one.chunk < operations.chunks:
                raise TachoscopeError(f"{one.optype} of stage {one.stage} has gmc {one.chunk}, of {operations.chunks} model chunks")
            number[COMPUTE.index(one.optype), one.chunk, batches.index(one.batch)] = index
    if (number < 0).any():
        kind, chunk, batch = (int(place) for place in np.argwhere(number < 0)[0])
        raise TachoscopeError(
            f"model chunk {chunk} lacks the {COMPUTE[kind]} of micro-batch {batches[batch]}",
            fix="all chunks must do all micro-batches, forward and backward",
        )
    return number


def _lower_median(values: Array, axis: int) -> Array:
    """Return the lower median: of two the lesser, of one itself."""
    middle = (values.shape[axis] - 1) // 2
    return np.asarray(np.take(np.partition(values, middle, axis=axis), middle, axis=axis))


def _ratio(one: Array, other: Array) -> Array:
    """Return one over the other, and 1 where there is nothing."""
    shape = np.broadcast_shapes(one.shape, other.shape)
    return np.divide(one, other, out=np.ones(shape), where=np.broadcast_to(other > 0, shape))
