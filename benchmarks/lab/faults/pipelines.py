"""Pipelines: few micro-batches leave the stages idle while it fills and drains, and one stage has more layers than the other."""

from __future__ import annotations

import statistics
from random import Random
from typing import Any

from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.rank_rows import Rows
from benchmarks.lab.spec import WARM_UP_STEPS, Planned

LAYERS = 48
"""Of both stages: so many that computing takes far longer than sending the micro-batches."""
STEPS = 60
MANY = 16
"""Micro-batches of a pipeline without a fault: its bubble is 1/16 of the ideal step."""


def _computed(rows: Rows) -> list[tuple[float, ...]]:
    return list(zip(*(rank["injected"]["computed"] for rank in rows.ranks), strict=True))[WARM_UP_STEPS:]


def filling(rows: Rows, planned: Planned) -> float:
    """Return (p - 1) times what a stage computes for one micro-batch, forward and backward: the pipeline fills and drains so long.

    The bubble of Megatron-LM, https://arxiv.org/abs/2104.04473 (section 2.2.1), with the computing that the stages measured.
    """
    micro_batches = int(planned.parameters["micro_batches"])
    return (len(rows.ranks) - 1) * statistics.fmean(statistics.fmean(values) for values in _computed(rows)) / micro_batches


def above_mean_stage(rows: Rows, planned: Planned) -> float:
    """Return by how much the stage that computes most exceeds the mean stage: what evenly spread layers would save."""
    means = [statistics.fmean(column) for column in zip(*_computed(rows), strict=True)]
    return max(means) - statistics.fmean(means)


def _few(dice: Random, ratio: float) -> dict[str, Any]:
    return {"micro_batches": round(1 / ratio), "layers": [LAYERS // 2, LAYERS // 2]}


def _moved(dice: Random, ratio: float) -> dict[str, Any]:
    """The ratio is that of the largest stage above the mean one."""
    more = round(LAYERS / 2 * (1 + ratio))
    layers = [more, LAYERS - more]
    dice.shuffle(layers)
    return {"micro_batches": MANY, "layers": layers}


def _of_shape(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {"micro_batches": shape["micro_batches"], "layers": shape["layers"]}


def _slow_stage(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {**_of_shape(dice, ratio, shape), "rank": max(range(2), key=lambda rank: shape["layers"][rank])}


CAUSES = (
    Cause("pipeline_bubble", "micro_batches", "pipeline", draw=_of_shape, seconds=filling, shape=_few, steps=STEPS),
    Cause(
        "stage_imbalance",
        "layers",
        "pipeline",
        draw=_slow_stage,
        seconds=above_mean_stage,
        shape=_moved,
        one_rank=True,
        steps=STEPS,
    ),
)
