"""Advice on what profiler traces show. A trace tells neither cores nor memory of a host: what hangs on them is said to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tachoscope_analyzers.advice import batch, exchange
from tachoscope_analyzers.advice.advised import NONE, Advised
from tachoscope_analyzers.advice.expected_step import step_without
from tachoscope_analyzers.advice.handover import handover_seconds
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.trace.analyses.inefficient_kernels import BLOCKS_SIGNAL
from tachoscope_analyzers.trace.losses.by_rank import LOADER_SECONDS, LOADS_IN_PROCESS


def advised(candidates: Sequence[Candidate], step_seconds: float, world_size: int) -> list[Candidate]:
    """Return the candidates, those that are large enough to be reported with an action in numbers, as far as the traces tell them.

    Args:
        step_seconds: mean step. world_size: ranks of the job.
    """
    found = []
    for one in candidates:
        make = _BY_SLUG.get(one.slug)
        large = one.seconds.mean() >= threshold("warning_share") * step_seconds
        made = make(one, step_seconds, world_size) if make is not None and large else NONE
        found.append(replace(one, action=made.text, advice=made.in_report) if made.text else one)
    return found


def _workers(candidate: Candidate, step: float, _: int) -> Advised:
    rows = {row.signal: row.value for row in candidate.evidence}
    if LOADS_IN_PROCESS not in rows or LOADER_SECONDS not in rows:
        return NONE  # with workers, a trace shows neither how many there are nor what they do
    from tachoscope_analyzers.advice import workers  # with all that reads records, which few traces need

    making = max(rows[LOADER_SECONDS], float(candidate.seconds.mean()))
    late = tuple(candidate.ranks) if candidate.slug == "input_straggler" and candidate.ranks != "all" else ()
    rest = step_without(candidate, step)
    return workers.advice(workers.Input(step=step, rest=rest, making=making, workers=0, ranks=late, handover=handover_seconds(0.0)))


def _launches(candidate: Candidate, step: float, _: int) -> Advised:
    return Advised(batch.for_launches(step, float(candidate.seconds.mean()), step_without(candidate, step)))


def _blocks(candidate: Candidate, _: float, __: int) -> Advised:
    return Advised(next((batch.for_blocks(row.value) for row in candidate.evidence if row.signal == BLOCKS_SIGNAL), ""))


def _exchange(candidate: Candidate, step: float, world_size: int) -> Advised:
    return exchange.advice(exchange.Exchange(step, float(candidate.seconds.mean()), world_size))


_BY_SLUG: dict[str, Callable[[Candidate, float, int], Advised]] = {
    "input_preprocess": _workers,
    "input_workers": _workers,
    "input_straggler": _workers,
    "launch_bound": _launches,
    "underfilled": _blocks,
    "comm_exposed": _exchange,
}
"""The classes for which there is more to say than the standard fix."""
