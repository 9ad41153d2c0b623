"""Memory of the host: a leak that ends near the limit of a control group, and a cache that levels off below it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from benchmarks.lab import cgroups
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.rank_rows import Rows
from benchmarks.lab.site import Hooks, Site
from benchmarks.lab.spec import Planned

from tachoscope.process import control_group
from tachoscope_cli.drill.memory_group import leave_room

ROOM_BYTES = 400 << 20
"""Between what the training holds when it is warm and the limit: far more than it takes by itself from then on."""
WARM_STEPS = 8
STEPS = 215
"""Of some 0.1 s: growth is judged after 20 s."""
FILLED_RATIOS = {0.1: 0.7, 0.2: 0.8, 0.5: 0.9}
"""Of the room, at the end of the run, by severity: the room is the same, and the rate of the leak differs."""
_CACHE_FULL_AT = 0.4
"""Part of the run after which a cache holds all that it will."""


def leaking(site: Site, planned: Planned) -> Hooks:
    """More and more memory is kept, by the same number of bytes in each step."""
    ratio = float(planned.parameters["filled_ratio"])
    return _filling(site, lambda done: ratio * done)


def caching(site: Site, ratio: float) -> Hooks:
    """No fault: a cache fills a part of the room at an even rate, and then does not grow any more."""
    return _filling(site, lambda done: ratio * min(done / _CACHE_FULL_AT, 1.0))


def _filling(site: Site, filled: Callable[[float], float]) -> Hooks:
    """Keep a part of the room in a control group of the rank's own, given the part of the run that is over."""
    cgroups.join(cgroups.make("memory", f"{site.spec.id}-{site.rank}", {}))
    kept: list[bytes] = []

    def updated(step: int, training: object) -> None:
        if step == WARM_STEPS:
            site.measured.notes["memory_limit_bytes"] = leave_room(_own_group(), ROOM_BYTES)
        if step >= WARM_STEPS:
            done = (step - WARM_STEPS) / max(site.spec.steps - 1 - WARM_STEPS, 1)
            kept.append(b"x" * max(int(ROOM_BYTES * filled(done)) - sum(map(len, kept)), 0))
            site.measured.notes["kept_bytes"] = sum(map(len, kept))

    return Hooks(updated=updated, after=kept.clear)


def _own_group() -> control_group.ControlGroup:
    group = control_group.memory_group()
    if group is None:
        raise OSError("no control group counts the memory of this rank")
    return group


def _no_seconds(rows: Rows, planned: Planned) -> float:
    """A leak makes no step longer."""
    return 0.0


def shape(dice: Random, ratio: float) -> dict[str, Any]:
    """Return what the training is like: one that waits for nothing."""
    return {"model": "convolution", "scale": 1.0, "workers": 0, "source": "loader", "micro_batches": 1, "pinned": False}


CAUSES = (
    Cause(
        "out_of_memory",
        "leak",
        "single",
        leaking,
        lambda dice, ratio, shape: {"filled_ratio": FILLED_RATIOS[ratio]},
        _no_seconds,
        needs=("memory_limit",),
        shape=shape,
        world_size=1,
        steps=STEPS,
    ),
)
