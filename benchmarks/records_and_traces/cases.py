"""The planted faults, and what both reports must say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One fault of `training.py`.

    Attributes:
        name: as the script takes it. classes: any of these is right; empty: there must be no warning.
        every: steps from one such fault to the next.
        ranks: that have it, as reports name them.
    """

    name: str
    classes: tuple[str, ...] = ()
    ranks: list[int] | str = "all"
    every: int = 1


_INPUT = ("input_workers", "input_fetch", "input_preprocess")
CASES = (
    Case("clean"),
    Case("slow_input_rank_1", ("input_straggler",), [1]),
    Case("slow_input", _INPUT),
    Case("slow_loader", _INPUT),
    Case("stall", ("host_pause",)),
    Case("stall_rank_1", ("host_pause",), [1]),
    Case("checkpoint", ("checkpoint_stall",), [0], every=5),
    Case("communication", ("comm_exposed",)),
)
BY_NAME = {case.name: case for case in CASES}
