"""torch.compile: code that is compiled again for each length, and a compilation that takes as long as a hang."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from benchmarks.lab.faults import lifecycle
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.site import Hooks, Site, clock
from benchmarks.lab.spec import Planned

_SHORTEST, _MORE_OPERATIONS = 16, 40
_MOST_LENGTHS = 4096


def recompiling(site: Site, planned: Planned) -> Hooks:
    """A part of the loss is compiled for each new length, in each n-th step: a guard on its size fails.

    How long compiling takes is set by how many operations the part has. The truth is the time of these calls, less that of a call
    whose length is compiled already.
    """
    if not site.is_culprit(planned):
        return Hooks()
    every, offset = int(planned.parameters["every"]), int(planned.parameters["offset"])
    call, known = _part(site.target_seconds(planned) * every)

    def forward(step: int) -> None:
        if step >= planned.first_step and step % every == offset % every:
            site.measured.add(planned.slug, max(0.0, _timed(call, _SHORTEST + 1 + step) - known))

    return Hooks(forward=forward)


def compiling_long(site: Site, planned: Planned) -> Hooks:
    """One rank compiles a part of its loss again, once, for as long as a hang lasts; its peers wait in the exchange."""
    if not site.is_culprit(planned):
        return Hooks()
    call, known = _part(float(planned.parameters["hang_seconds"]))

    def forward(step: int) -> None:
        if step == int(planned.parameters["at_step"]):
            site.measured.add(planned.slug, max(0.0, _timed(call, _SHORTEST + 1) - known))

    return Hooks(forward=forward)


def compiled_at_start(site: Site, seconds: float, rank: int) -> Hooks:
    """No fault: a rank, or each where `rank` is -1, compiles a part of its loss in its first step, for as long as a hang lasts."""
    if rank not in {-1, site.rank}:
        return Hooks()
    operations = _operations(seconds)

    def of_start(values: torch.Tensor) -> torch.Tensor:  # code of its own: none of it was compiled before
        for _ in range(operations):
            values = torch.sin(values) + 1.0
        return values.sum()

    call = torch.compile(of_start, backend="aot_eager", dynamic=False)

    def forward(step: int) -> None:
        seconds = _timed(call, _SHORTEST)
        if not step:
            site.measured.notes["start_compile_seconds"] = seconds

    return Hooks(forward=forward)


def _part(seconds: float) -> tuple[Callable[[torch.Tensor], torch.Tensor], float]:
    """Return a function that takes about so long to compile and is compiled for one length, and how long a call then takes."""
    call = _compiled(_operations(seconds))
    _timed(call, _SHORTEST)
    return call, _timed(call, _SHORTEST)


def _operations(seconds: float) -> int:
    """Return of how many operations a function takes so long to compile."""
    few, more = _compile_seconds(1), _compile_seconds(1 + _MORE_OPERATIONS)
    return 1 + max(0, round((seconds - few) * _MORE_OPERATIONS / max(more - few, 1e-3)))


def _compiled(operations: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function of so many operations that is compiled for each length, without end."""

    def of_loss(values: torch.Tensor) -> torch.Tensor:
        for _ in range(operations):
            values = torch.sin(values) + 1.0
        return values.sum()

    made: Callable[[torch.Tensor], torch.Tensor] = torch.compile(of_loss, backend="aot_eager", dynamic=False)
    config = torch._dynamo.config
    config.recompile_limit = config.accumulated_recompile_limit = _MOST_LENGTHS
    return made


def _compile_seconds(operations: int) -> float:
    """Return how long a second compilation takes: the first one imports."""
    call = _compiled(operations)
    _timed(call, _SHORTEST)
    return _timed(call, _SHORTEST + 1)


def _timed(call: Callable[[torch.Tensor], torch.Tensor], length: int) -> float:
    begin = clock()
    call(torch.ones(length))
    return clock() - begin


def _rank_or_all(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    every = dice.choice([5, 8, 10] if ratio >= 0.2 else [10, 15, 20])
    return {"every": every, "offset": dice.randrange(every), "rank": dice.choice([0, 0, -1])}


CAUSES = (Cause("recompilation", "lengths", "ddp", recompiling, _rank_or_all, shape=lambda dice, ratio: {"workers": 0}),)
LOOKALIKE_CAUSES = (
    Cause(
        "recompilation",
        "long",
        "ddp",
        compiling_long,
        lifecycle.draw_hang,
        one_rank=True,
        shape=lambda dice, ratio: {"workers": 0},
        steps=80,
    ),
)
