"""What a way of causing a bottleneck is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.lab.rank_rows import Rows, latest_rank
from benchmarks.lab.site import Hooks, Site
from benchmarks.lab.spec import Planned


def nothing(site: Site, planned: Planned) -> Hooks:
    """Arm nothing: the workload's shape, or the lab from outside, is the fault."""
    return Hooks()


@dataclass(frozen=True, slots=True)
class Cause:
    """A way of causing a class.

    Attributes:
        arm: what one rank does for it. draw: its parameters, from the run's dice, the ratio of seconds and the workload's shape.
        seconds: what it cost in each step, on average after the warm-up, from what the ranks measured.
        needs: facilities of `facilities.CHECKS`. one_rank: whether it has a culprit.
        shape: what the workload must be like for it, by name, and what it draws instead.
        acceptable: other classes that are right as well; the docstring of `arm` says why.
        severities: where it cannot be had at all three. midway: it begins in the middle of the run.
        network: `loopback` or `cards`: the ranks get a network of their own, see `network`.
    """

    slug: str
    name: str
    workload: str
    arm: Callable[[Site, Planned], Hooks] = nothing
    draw: Callable[[Random, float, dict[str, Any]], dict[str, Any]] = lambda dice, ratio, shape: {}
    seconds: Callable[[Rows, Planned], float] = latest_rank
    needs: tuple[str, ...] = ("two_cores",)
    one_rank: bool = False
    shape: Callable[[Random, float], dict[str, Any]] = lambda dice, ratio: {}
    acceptable: tuple[str, ...] = ()
    severities: tuple[float, ...] = (0.1, 0.2, 0.5)
    world_size: int = 2
    steps: int = 120
    midway: bool = False
    network: str = ""
