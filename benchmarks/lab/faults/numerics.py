"""Numbers that are wrong without anything being slow: a flipped bit on one replica, and parameters that are old."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.rank_rows import Rows
from benchmarks.lab.site import Hooks, Site
from benchmarks.lab.spec import Planned

import tachoscope

CHECK_EVERY = 10


def watched_integrity(site: Site) -> Hooks:
    """Ask the probe for its integrity checks, as a user does; where it has none yet, the run is recorded without."""

    def before_first(step: int, training: Any) -> None:
        check = getattr(tachoscope, "integrity", None)
        if step == 0 and check is not None:
            check(training.model, every=CHECK_EVERY)

    return Hooks(updated=before_first)


def flipped_bit(site: Site, planned: Planned) -> Hooks:
    """After the optimizer's step one bit of one parameter of one replica is another, or the parameter is not a number any more.

    Nothing becomes slower. What it costs is the work since: it has to be done again, so that the seconds are those of the steps
    from the flip to the end of the run.
    """

    def updated(step: int, training: Any) -> None:
        if step != planned.first_step or not site.is_culprit(planned):
            return
        weights = list(training.model.parameters())[int(planned.parameters["tensor"])].data.view(-1)
        place = int(planned.parameters["place"]) % weights.numel()
        if planned.parameters["kind"] == "nan":
            weights[place] = float("nan")
        else:
            weights.view(torch.int32)[place] ^= 1 << int(planned.parameters["bit"])

    return Hooks(updated=updated)


def rate_spike(step_of_spike: int, factor: float) -> Hooks:
    """Raise the learning rate for one step, on all ranks: the loss jumps, and nothing is corrupt."""

    def updated(step: int, training: Any) -> None:
        if step in {step_of_spike, step_of_spike + 1}:
            for group in training.optimizer.param_groups:
                group["lr"] *= factor if step == step_of_spike else 1 / factor

    return Hooks(updated=updated)


def work_since(rows: Rows, planned: Planned) -> float:
    """Return the seconds of the steps since the fault, spread over all steps."""
    walls = [max(values) for values in zip(*(rank["wall"] for rank in rows.ranks), strict=False)]
    return sum(walls[planned.first_step + 1 :]) / len(walls)


def no_seconds(rows: Rows, planned: Planned) -> float:
    """Return 0: asynchronous training is not slower for it, it learns worse."""
    return 0.0


def _flip(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    kind = dice.choice(["bit", "bit", "nan"])
    return {
        "rank": dice.randrange(3),
        "kind": kind,
        "bit": dice.randrange(20, 31),
        "tensor": dice.randrange(4),
        "place": dice.randrange(10**6),
    }


def _seldom_read(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {"rank": -1, "every": {0.1: 4, 0.2: 8}.get(ratio, 20)}


def _slow_worker(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {"rank": dice.randrange(3), "slow": {0.1: 4.0, 0.2: 6.0}.get(ratio, 12.0)}


CAUSES = (
    Cause("silent_corruption", "flip", "replicas", flipped_bit, _flip, work_since, (), one_rank=True, world_size=3, steps=90),
    Cause("async_staleness", "seldom_read", "ps", draw=_seldom_read, seconds=no_seconds, needs=(), world_size=3, steps=90),
    Cause(
        "async_staleness",
        "slow_worker",
        "ps",
        draw=_slow_worker,
        seconds=no_seconds,
        needs=(),
        one_rank=True,
        world_size=3,
        steps=60,
    ),
)
