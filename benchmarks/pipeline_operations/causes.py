"""From the Shapley values of a replayed step to candidates: which class, whose fault, and what speaks for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from benchmarks.pipeline_operations.attribution import Attribution
from benchmarks.pipeline_operations.effects import CAUSES, FAR, deviation
from benchmarks.pipeline_operations.kinds import BACKWARD, COMPUTE, FORWARD
from benchmarks.pipeline_operations.operations import Array, Operations

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks, culprits
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_core.report.report import Evidence

SOURCE = "operations of all workers"
TITLES = {
    "stage": "uneven stages",
    "worker": "slow workers",
    "data": "uneven micro-batches",
    "pauses": "pauses and jitter of single operations",
    "communication": "transfers longer than usual",
    "rest": "optimizer and the rest",
}
_APART = 3.0
"""Design choice: a worker that is this many such deviations slower than the others is not just one of them."""
_EXPLAINED_RATIO = 0.5
"""Design choice: a class has the name of what makes up more than half of it."""

_Named = tuple[str, Ranks, list[Evidence], float, tuple[str, float] | None, str]
"""Class, ranks, evidence, certainty, look-alike and action of a cause."""


def candidates(operations: Operations, found: Attribution) -> list[Candidate]:
    """Return what the step loses to each cause of its gap to the ideal step, and to launch and host delay."""
    named: dict[str, Callable[[Operations, Attribution], _Named]] = {
        "stage": _stages,
        "worker": _workers,
        "data": _data,
        "pauses": _pauses,
        "communication": _communication,
        "rest": _rest,
    }
    made = []
    for cause, values in found.causes.values.items():
        slug, ranks, evidence, certainty, alternative, action = named[cause](operations, found)
        rows = [*_what_if(found, cause), *evidence]
        made.append(Candidate(slug, values, ranks, rows, certainty, alternative, action, found.speedup(cause)))
    delay = [
        _evidence("launch and host delay that is not hidden behind other work", float(found.delay.mean()), "seconds per step"),
        _evidence("delay before operations, hidden or not, of one worker", _all_gaps(operations, found), "seconds per step"),
    ]
    made.append(Candidate("unknown", found.delay, "all", delay, 0.5, ("launch_bound", 0.0)))
    return made


def inherent(operations: Operations, found: Attribution) -> list[Candidate]:
    """Return what the ideal step itself spends on waiting and on transfers: what there is to gain where nothing is wrong."""
    count, step = len(operations.steps), float(found.step.mean())
    bubble = float((operations.stages - 1) / (operations.chunks // operations.stages) * found.effects.computing.ideal.sum())
    formula = _evidence("(p - 1) / (m + p - 1), the share of the bubble for p stages and m micro-batches", bubble_ratio(operations))
    transfers = _evidence("the ideal step without transfers", float(found.ideal.mean()) - found.exposed, "seconds per step")
    exposed = Candidate("comm_exposed", np.full(count, found.exposed), "all", [transfers])
    if bubble < threshold("warning_share") * step:
        return [exposed]
    # Expected, so nothing is broken: told, but no warning.
    return [Candidate("pipeline_bubble", np.full(count, bubble), "all", [formula], level="info"), exposed]


def bubble_ratio(operations: Operations) -> float:
    """Return the expected share of the bubble: (p - 1) / (v m + p - 1) with v chunks a stage, of Megatron's interleaved 1F1B.

    Source: https://arxiv.org/abs/2104.04473, section 2.2.
    """
    batches = len({one.batch for one in operations.each if one.optype in COMPUTE})
    chunks = operations.chunks // operations.stages
    return (operations.stages - 1) / (chunks * batches + operations.stages - 1)


def refused(found: Attribution, waiting: Array) -> list[Candidate]:
    """Return the waiting of a step whose replay cannot be trusted, `waiting` of shape (K,), as a loss of unknown cause."""
    error = _evidence("error of the replay", found.error_ratio, limit=threshold("replay_error"), comparison="<=")
    return [Candidate("unknown", waiting, "all", [error], 0.5, level="warning")]


def _what_if(found: Attribution, cause: str) -> list[Evidence]:
    """Return the shares and what removing the cause alone, or with the next largest one, would bring."""
    others = sorted((other for other in CAUSES if other != cause), key=lambda other: -found.shares[other])
    return [
        _evidence("share of the gap to the ideal step (Shapley value)", found.shares[cause]),
        _evidence("saved if only this is fixed (leave one out)", found.saved(cause), "seconds per step"),
        _evidence(f"saved if this and {TITLES[others[0]]} are fixed", found.saved(cause, others[0]), "seconds per step"),
    ]


def _stages(operations: Operations, found: Attribution) -> _Named:
    by_stage = stage_seconds(operations, found)
    balanced = float(by_stage.mean())
    over = np.maximum(by_stage - balanced, 0.0)
    slow = _covering(over)
    ranks = sorted(int(rank) for rank in operations.ranks[slow].ravel())
    if not slow:
        return "stage_imbalance", "all", [], 0.5, None, ""
    names = ", ".join(map(str, slow))
    light = int(by_stage.argmin())
    evidence = [
        _evidence(f"computing of stage {stage}", float(by_stage[stage]), "seconds per step", balanced, ">") for stage in slow
    ]
    action = (
        f"move layers from stage {names} ({by_stage[slow].max():.3g} s of computing a step) towards stage {light} "
        f"({by_stage[light]:.3g} s); balanced, each would have {balanced:.3g} s. The last stage also has the loss"
    )
    told = operations.ranks.shape[1] > 1  # with one replica a slow stage and a slow worker look the same
    return "stage_imbalance", ranks or "all", evidence, 1.0 if told else 0.5, None, action


def stage_seconds(operations: Operations, found: Attribution) -> Array:
    """Return the computing of the median worker of each stage, seconds per step, shape (stages,)."""
    parts = found.effects.computing
    seconds = (parts.stage * parts.ideal[:, None]).sum(axis=0) * parts.number.shape[2]
    stages = [operations.each[number].stage for number in parts.number[0, :, 0]]
    return np.bincount(stages, weights=seconds, minlength=operations.stages).astype(np.float64)


def _workers(operations: Operations, found: Attribution) -> _Named:
    parts = found.effects.computing
    usual = (parts.stage * parts.ideal[:, None])[:, :, None] * parts.number.shape[2]
    stages = [operations.each[number].stage for number in parts.number[0, :, 0]]
    normal, over = np.zeros(operations.ranks.shape), np.zeros(operations.ranks.shape)
    np.add.at(normal, stages, np.broadcast_to(usual, parts.worker.shape).sum(axis=0))
    np.add.at(over, stages, (usual * (parts.worker - 1.0)).sum(axis=0))
    ratio = over / np.maximum(normal, 1e-12)
    far = ratio > max(_APART * deviation(ratio), 1e-9)
    late = np.where(far, np.maximum(over, 0.0), 0.0) if far.any() else np.maximum(over, 0.0)
    who = culprits(late.reshape(1, -1), operations.ranks.ravel().tolist())
    chosen = np.isin(operations.ranks, who.ranks) if who.ranks != "all" else late > 0
    if not chosen.any():
        return "unknown", "all", [], 0.5, None, ""
    evidence = [
        _evidence(
            "computing of the slow workers",
            float((normal + over)[chosen].mean()),
            "seconds per step",
            float(normal[chosen].mean()),
            ">",
        ),
        _evidence(
            "part of the excess that stays with these ranks", who.coverage, limit=threshold("culprit_coverage"), comparison=">="
        ),
    ]
    if who.ranks == "all" and operations.ranks.size > 1:
        return "unknown", "all", evidence, 0.5, ("compute_straggler", 0.0), ""
    return "compute_straggler", who.ranks, evidence, 1.0, None, ""


def _data(_operations: Operations, found: Attribution) -> _Named:
    alike, limit = found.effects.computing.alike, threshold("forward_backward_correlation")
    signal = f"correlation of {FORWARD} and {BACKWARD} of the same micro-batch"
    evidence = [
        _evidence(signal, alike, "", limit, ">=" if alike >= limit else "<"),
        _evidence("largest micro-batch, times the mean", float(found.effects.computing.data.max()), "x"),
    ]
    return "data_imbalance", "all", evidence, 1.0, None, ""


def _pauses(operations: Operations, found: Attribution) -> _Named:
    parts = found.effects.computing
    left = parts.pauses
    far = left > max(FAR * deviation(left), 1e-9)
    collected = found.effects.measured[found.effects.pauses].sum() if len(found.effects.pauses) else 0.0
    total = float(np.maximum(left, 0.0).sum() + collected)
    single = float(left[far].sum() + collected)
    share = single / total if total else 0.0
    count = len(operations.steps)
    evidence = [
        _evidence("part of it in single long operations and garbage collection", share, limit=_EXPLAINED_RATIO, comparison=">="),
        _evidence("such operations a step", float(far.sum()) / count, "operations"),
        _evidence("garbage collection, all workers", float(collected) / count, "seconds per step"),
    ]
    matrix = np.zeros((count, *operations.ranks.shape))
    for (kind, chunk, batch), number in np.ndenumerate(parts.number):
        matrix[:, operations.each[number].stage] += np.where(far[kind, chunk, batch], left[kind, chunk, batch], 0.0)
    for number in found.effects.pauses.tolist():
        matrix[:, operations.each[number].stage] += found.effects.measured[number]
    who = culprits(matrix.reshape(count, -1), operations.ranks.ravel().tolist())
    if share >= _EXPLAINED_RATIO:
        return "host_pause", who.ranks, evidence, 1.0, None, ""
    return "unknown", "all", evidence, 0.5, ("host_pause", 0.0), ""


def _communication(operations: Operations, found: Attribution) -> _Named:
    over: dict[tuple[int, ...], float] = {}
    transfers = set(found.effects.communication.tolist())
    for group in found.graph.groups:
        members = [number for number in group.members if number in transfers]
        if members:
            over_typical = found.effects.measured[members] - found.effects.typical[members][:, None, None]
            excess = np.maximum(over_typical, 0.0).mean(axis=(0, 1))
            stages = sorted({operations.each[number].stage for number in members})
            each = [[replica] for replica in range(len(excess))]
            for replicas in [list(range(len(excess)))] if group.everywhere else each:
                who = tuple(int(rank) for rank in operations.ranks[np.ix_(stages, replicas)].ravel())
                over[who] = over.get(who, 0.0) + float(excess[replicas].mean())
    groups = list(over)
    seconds = np.array([over[group] for group in groups])
    slow = _covering(seconds)
    ranks = sorted({rank for index in slow for rank in groups[index]})
    evidence = [
        _evidence("transfer beyond the median, summed over operations", float(seconds.sum()), "seconds per step"),
        _evidence("groups of workers that have 80 % of it", len(slow), "groups", len(groups) / 2, "<="),
    ]
    if len(slow) <= len(groups) / 2 and len(ranks) < operations.ranks.size:
        return "slow_link", ranks, evidence, 0.8, ("network_degraded", 0.0), ""
    return "network_degraded", "all", evidence, 0.7, ("slow_link", 0.0), ""


def _rest(operations: Operations, found: Attribution) -> _Named:
    taken = (
        found.effects.measured[found.effects.rest].mean(axis=(1, 2)).sum() / operations.stages if len(found.effects.rest) else 0.0
    )
    return "unknown", "all", [_evidence("optimizer and the rest of one worker", float(taken), "seconds per step")], 0.5, None, ""


def _all_gaps(operations: Operations, found: Attribution) -> float:
    return float(found.times.gap.mean(axis=(1, 2)).sum()) / operations.stages


def _covering(values: Array) -> list[int]:
    """Return the fewest places that hold the share `culprit_coverage` of a sum, in order of place; none of nothing."""
    if values.sum() <= 0:
        return []
    order = np.argsort(-values, kind="stable")
    count = int(np.searchsorted(np.cumsum(values[order]) / values.sum(), threshold("culprit_coverage") - 1e-9)) + 1
    return sorted(order[:count].tolist())


def _evidence(signal: str, value: float, unit: str = "ratio", limit: float | None = None, comparison: str = "") -> Evidence:
    return Evidence(signal=signal, value=float(value), threshold=limit, comparison=comparison, unit=unit, source=SOURCE)  # type: ignore[arg-type]
