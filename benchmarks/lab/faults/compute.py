"""Compute: one rank with more to do, a core that is shared, and work that is uneven."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Any

import torch
from benchmarks.lab import cgroups, processes
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.rank_rows import longest_over_mean
from benchmarks.lab.site import Hooks, Site, repeats_for, run_delay_seconds
from benchmarks.lab.spec import Planned


def multiplying() -> Callable[[], object]:
    """Return a unit of extra work: a product of small matrices."""
    matrix = torch.randn(96, 96)
    return lambda: torch.tanh(matrix @ matrix)


def streaming() -> Callable[[], object]:
    """Return a unit of extra work: a pass over memory."""
    vector = torch.randn(1 << 17)
    return lambda: vector.mul(1.0001)


UNITS = {"multiplying": multiplying, "streaming": streaming}


def extra_work(site: Site, planned: Planned) -> Hooks:
    """One rank computes more than the others in each step."""
    if not site.is_culprit(planned):
        return Hooks()
    unit = UNITS[planned.parameters["unit"]]()
    repeats = repeats_for(unit, site.target_seconds(planned))

    def work(step: int) -> None:
        if step >= planned.first_step:
            with site.measured.time(planned.slug):
                for _ in range(repeats):
                    unit()

    return Hooks(forward=work)


def _spin(burn_seconds: float, period_seconds: float, core: int) -> None:
    """Use a core for so many CPU seconds in each period."""
    os.sched_setaffinity(0, {core})
    while True:
        begin, cpu = time.monotonic(), time.process_time()
        while time.process_time() - cpu < burn_seconds:
            pass
        time.sleep(max(0.0, period_seconds - (time.monotonic() - begin)))


def spinner(site: Site, planned: Planned) -> Hooks:
    """Another process computes on the rank's core. The truth is that process's CPU clock: what it has, the rank has not.

    In each of its periods it computes for the ratio of them that makes the rank's step longer by as much as wanted: of the time
    in which both want to run each gets half.
    """
    if not site.is_culprit(planned):
        return Hooks()
    own = sorted(os.sched_getaffinity(0))  # the workload pinned it
    period = float(planned.parameters["period_seconds"])
    ratio = site.target_seconds(planned) / (site.seconds + site.target_seconds(planned))
    child: list[Any] = []

    def before() -> None:
        child.append(processes.fork(_spin, period * ratio, period, own[0], helper=True))
        last[0] = used()

    def used() -> int:
        return int(Path(f"/proc/{child[0].pid}/schedstat").read_text().split()[0])

    last = [0]

    def updated(step: int, training: object) -> None:
        now = used()
        site.measured.add(planned.slug, (now - last[0]) / 1e9)
        last[0] = now

    return Hooks(before=before, updated=updated, after=lambda: child[0].kill())


def quota(site: Site, planned: Planned) -> Hooks:
    """A control group gives the rank less CPU time than it could use.

    A thread that the group's quota stops is ready to run and gets no core: that is waiting for a core, not slow computing. The
    truth is the kernel's own count of that for the thread, less that of a clean step.
    """
    if not site.is_culprit(planned):
        return Hooks()
    ratio = site.measured.clean_cpu_seconds / (site.seconds + site.target_seconds(planned))
    period_us = int(planned.parameters["period_us"])
    last = [0.0]

    def before() -> None:
        # The sampler and the exchange's threads are in the group too; the little that they use is given on top.
        quota_us = max(1000, round(period_us * min(ratio * 1.02, 1.0)))
        settings = {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(quota_us)}
        cgroups.join(cgroups.make("cpu", f"{site.spec.id}-{site.rank}", settings))
        last[0] = run_delay_seconds()

    def updated(step: int, training: object) -> None:
        now = run_delay_seconds()
        site.measured.add(planned.slug, max(0.0, now - last[0] - site.measured.clean_delay_seconds))
        last[0] = now

    return Hooks(before=before, updated=updated)


def uneven_lengths(site: Site, planned: Planned) -> Hooks:
    """Each rank's batch has a length of its own, log-normal: the steps wait for whichever is longest.

    Of two log-normal lengths with the mean 1 the greater is 2 Phi(sigma / sqrt 2) on average.
    """
    ratio = min(planned.seconds_ratio, 0.8)
    sigma = math.sqrt(2) * NormalDist().inv_cdf((1 + ratio) / 2)
    seed = planned.parameters["seed"]

    def length(batch: int) -> float:
        dice = Random(f"{seed}-{batch}-{site.rank}")
        return min(max(dice.lognormvariate(-sigma * sigma / 2, sigma), 0.15), 5.0)

    return Hooks(length=length)


def _rank_and_unit(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {"rank": dice.randrange(2), "unit": dice.choice(list(UNITS))}


def _pinned(dice: Random, ratio: float) -> dict[str, Any]:
    return {"pinned": True, "workers": 0}


CAUSES = (
    Cause("compute_straggler", "extra_work", "ddp", extra_work, _rank_and_unit, one_rank=True),
    Cause(
        "cpu_contention",
        "spinner",
        "ddp",
        spinner,
        lambda dice, ratio, shape: {"rank": dice.randrange(2), "period_seconds": dice.choice([0.01, 0.02, 0.04])},
        one_rank=True,
        shape=_pinned,
    ),
    Cause(
        "cpu_contention",
        "quota",
        "ddp",
        quota,
        lambda dice, ratio, shape: {"rank": dice.randrange(2), "period_us": dice.choice([10_000, 20_000, 50_000])},
        needs=("two_cores", "cpu_quota"),
        one_rank=True,
        shape=lambda dice, ratio: {"workers": 0},
    ),
    Cause(
        "data_imbalance",
        "lengths",
        "ddp",
        uneven_lengths,
        lambda dice, ratio, shape: {"seed": dice.randrange(10**6)},
        longest_over_mean,
        shape=lambda dice, ratio: {"model": "sequence"},
    ),
)
