"""A job that stands still, and one that is killed and starts again: done from outside, by the lab (see `one_run`)."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.rank_rows import Rows, latest_rank, noted
from benchmarks.lab.site import Hooks, Site
from benchmarks.lab.spec import Planned


def stuck(site: Site, planned: Planned) -> Hooks:
    """One rank waits on its host for something that does not come for long; its peers wait in the exchange."""

    def updated(step: int, training: object) -> None:
        if step == int(planned.parameters["at_step"]) and site.is_culprit(planned):
            with site.measured.time(planned.slug):
                threading.Event().wait(float(planned.parameters["hang_seconds"]))

    return Hooks(updated=updated)


def stopped_seconds(rows: Rows, planned: Planned) -> float:
    """Return the seconds for which the rank was stopped, or the job hung until it was killed, spread over the steps."""
    return noted("hang_seconds", rows)


def replayed_seconds(rows: Rows, planned: Planned) -> float:
    """Return the seconds of the steps that were done again, spread over the steps of the last attempt."""
    return float(rows.outside["replayed_steps"]) * rows.mean("clean_step_seconds") / max(1, len(rows.column("wall")))


_STEPS = 200
"""Of a job that starts twice: of a shorter one, starting takes far longer than all that it can do again."""


def draw_hang(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {"rank": dice.randrange(2), "at_step": dice.randrange(25, 60), "hang_seconds": 5.5 + 5 * ratio + dice.random()}


def _kill(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    """So many steps since the last checkpoint are lost; there may have been one, or none yet."""
    lost, every = round(ratio * _STEPS), int(shape["save_every"])
    first = 0 if lost + every > 0.8 * _STEPS else dice.choice([0, every])
    return {"rank": dice.randrange(2), "at_step": first + lost}


def _saving(dice: Random, ratio: float) -> dict[str, Any]:
    return {"workers": 0, "save_every": round(ratio * _STEPS) + dice.randrange(4, 12)}


RESTART_SECONDS = 0.5
_NO_WORKERS = {"workers": 0}
CAUSES = (
    Cause(
        "hang",
        "stopped",
        "ddp",
        draw=draw_hang,
        seconds=stopped_seconds,
        one_rank=True,
        shape=lambda dice, ratio: _NO_WORKERS,
        steps=80,
    ),
    Cause("hang", "stuck", "ddp", stuck, draw_hang, latest_rank, one_rank=True, shape=lambda dice, ratio: _NO_WORKERS, steps=80),
    Cause("lost_work", "killed", "ddp", draw=_kill, seconds=replayed_seconds, one_rank=True, shape=_saving, steps=_STEPS),
)
