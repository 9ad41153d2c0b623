"""What is told of a pipeline: its bubble, measured beside the ideal one, and stages with more work than others."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.classify.pipeline.attribution import Pipeline, StagedLosses
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.evidence import compared, measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.report.report import Evidence


def candidates(steps: Steps, losses: Losses) -> list[Candidate]:
    """Return what the step loses to the bubble, to uneven stages, and to waiting that neither explains; nothing without stages."""
    if not isinstance(losses, StagedLosses):
        return []
    pipeline = losses.pipeline
    shape = [
        measured("stages", pipeline.stages, "stages", pipeline.source),
        measured("micro-batches", pipeline.micro_batches, "backward calls per step", "step records"),
        _against_ideal(
            "bubble measured, the ranks' waiting over their work; against the ideal, (p - 1)/(v m) of even stages",
            float(steps.waiting.mean() / _own_work(steps).mean()),
            pipeline.ideal_bubble,
        ),
        _against_ideal(
            "the same, share of the step; against (p - 1)/(v m + p - 1)",
            float(steps.waiting.mean() / steps.wall.mean()),
            pipeline.bubble_share,
        ),
    ]
    bubble = Candidate("pipeline_bubble", losses.bubble, "all", shape, action=_action(pipeline))
    unexplained = Candidate("unknown", losses.unexplained, "all", shape, 0.5, ("pipeline_bubble", 0.0))
    return [bubble, *_imbalance(steps, losses, shape), unexplained]


def _against_ideal(signal: str, value: float, ideal: float) -> Evidence:
    return Evidence(
        signal=signal,
        value=value,
        threshold=ideal,
        comparison=">" if value > ideal else "<=",
        unit="ratio",
        source="step records",
    )


def _action(pipeline: Pipeline) -> str:
    """Return the number of micro-batches that reduces the bubble below the warning threshold."""
    enough = int(np.ceil((pipeline.stages - 1) * (1 / threshold("warning_share") - 1)))
    if pipeline.micro_batches >= enough:
        return ""
    p, m, least = pipeline.stages, pipeline.micro_batches, threshold("warning_share")
    return (
        f"more micro-batches per step, or an interleaved schedule: with p = {p} stages and m = {m} the bubble is "
        f"(p - 1)/(m + p - 1) = {pipeline.bubble_share:.0%} of the step, from m = {enough} on {least:.0%} or less"
    )


def _imbalance(steps: Steps, losses: StagedLosses, shape: list[Evidence]) -> list[Candidate]:
    """Return imbalance: a stage that is slowest in most steps has more work; a varying one is not a matter of layers."""
    if not losses.imbalance.any():
        return []
    columns = losses.pipeline.columns(losses.slowest)
    others = np.flatnonzero(losses.pipeline.stage != losses.slowest)
    steady = float((losses.imbalance > 0).mean())
    least = threshold("straggler_steps")
    evidence = [
        Evidence(
            signal=f"own time of stage {losses.slowest}, that of the slowest of the others as threshold",
            value=float(np.mean(_own_work(steps)[:, columns])),
            threshold=float(max(_own_work(steps)[:, column].mean() for column in others)),
            comparison=">",
            unit="seconds per step",
            source="step records",
        ),
        compared("part of the steps in which this stage has more work than the mean stage", steady, least, "ratio", "step records"),
        *shape,
    ]
    ranks = sorted(steps.ranks[column] for column in columns)
    if steady >= least:
        return [Candidate("stage_imbalance", losses.imbalance, ranks, evidence)]
    return [Candidate("unknown", losses.imbalance, "all", evidence, 0.5, ("stage_imbalance", 0.0))]


def _own_work(steps: Steps) -> Matrix:
    return np.asarray(steps.own["compute"] + steps.own["cpu_wait"])
