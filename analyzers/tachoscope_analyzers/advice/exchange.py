"""Exposed gradient exchange: how much of it can hide behind backward, and how many batches an exchange should serve.

With a step of T seconds of which X is exposed exchange, k batches an exchange (gradient accumulation) take T - X + X / k each. The
share of the exchange, (X / k) / (T - X + X / k), is half of X / T at k = (2 T - X) / (T - X). Overlap hides at most the shorter of
exchange and backward. Both are in Li et al. (2020), PyTorch Distributed, https://arxiv.org/abs/2006.15704.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tachoscope_analyzers.advice.advised import NONE, Advised
from tachoscope_analyzers.advice.number_text import count, number, time
from tachoscope_analyzers.data.thresholds import threshold


@dataclass(frozen=True, slots=True)
class Exchange:
    """Seconds per step.

    Attributes:
        step: mean step. exposed: of it, in which nothing but the exchange goes on. ranks: that exchange.
        backward: a rank's own, None: not measured. blocking_calls: part of `exposed` in collectives that the script itself calls.
    """

    step: float
    exposed: float
    ranks: int
    backward: float | None = None
    blocking_calls: float = 0.0


def batches_for_half_the_share(step_seconds: float, exposed_seconds: float) -> int:
    """Return the batches an exchange at which its share of the time is half as large.

    Raises:
        ValueError: all of the step is exchange.
    """
    rest = step_seconds - exposed_seconds
    if rest <= 0:
        raise ValueError(f"{exposed_seconds} s of a step of {step_seconds} s leave nothing to share the exchange")
    return math.ceil((2 * step_seconds - exposed_seconds) / rest - 1e-9)


def batch_seconds(step_seconds: float, exposed_seconds: float, batches: int) -> float:
    """Return the seconds that a batch takes if one exchange serves so many."""
    return step_seconds - exposed_seconds + exposed_seconds / batches


def hidden_at_most(found: Exchange) -> float:
    """Return the most that overlapping with backward can hide, in seconds; 0 where backward was not measured."""
    return min(found.exposed, found.backward or 0.0)


def advice(found: Exchange) -> Advised:
    """Return what overlap and accumulation bring; none where the step is nothing but exchange."""
    rest = found.step - found.exposed
    if rest <= 0 or found.exposed <= 0:
        return NONE
    batches = batches_for_half_the_share(found.step, found.exposed)
    if batches > threshold("most_batches_an_exchange"):
        return Advised(_too_small(found, rest))
    after = batch_seconds(found.step, found.exposed, batches)
    return Advised(f"{_overlap(found)}{_accumulation(found, batches, after)}", {"accumulated_batches": batches}, after)


def of_each_batch(dimensions: Sequence[str]) -> Advised:
    """Return what helps against collectives that belong to each batch: those of tensor, context or expert groups."""
    return Advised(
        f"most of it is collectives of {' and '.join(dimensions)}, which belong to each batch: accumulating batches does not save "
        "them. Keep the ranks of a group on the links of one node, have fewer of them, or start the calls earlier (async_op=True)"
    )


def _accumulation(found: Exchange, batches: int, after: float) -> str:
    return (
        f"accumulate {count(batches, 'batch', 'es')} an exchange (no_sync()): "
        f"ceil((2 x {time(found.step)} - {time(found.exposed)}) / {time(found.step - found.exposed)}) = {batches} halve its share: "
        f"{time(after)} a batch, not {time(found.step)}"
    )


def _overlap(found: Exchange) -> str:
    most = hidden_at_most(found)
    if most < threshold("warning_share") * found.exposed:
        return ""
    by_script = found.blocking_calls > found.exposed / 2
    how = "async_op=True, or DDP" if by_script else "DDP with a smaller bucket_cap_mb, static_graph=True"
    return (
        f"start it earlier in backward ({how}): at most min({time(found.exposed)}, {time(found.backward or 0.0)}) hides, "
        f"{time(found.step - most)} a step. Or "
    )


def _too_small(found: Exchange, rest: float) -> str:
    """Return that the work is too small for so many ranks, and what one alone would need for what all do in a step."""
    alone = found.ranks * rest
    words = f"{time(rest)} of computing a batch do not pay for an exchange of {time(found.exposed)}: a far larger batch"
    if alone >= found.step:
        return f"{words}, or fewer ranks"
    return (
        f"{words}, or fewer ranks: one alone would do the {count(found.ranks, 'batch', 'es')} of a step in "
        f"{found.ranks} x {time(rest)} = {time(alone)} instead of {time(found.step)} ({number(found.step / alone, 2)}x as fast)"
    )
