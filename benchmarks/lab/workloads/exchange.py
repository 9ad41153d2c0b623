"""Four ranks that average their gradients pair by pair, by messages: a round robin, in each step with another partner.

Of a step's time most is slept, as if it were waited for a device: four ranks cannot compute at once on two cores.
"""

from __future__ import annotations

import os
import statistics
import time

import torch
import torch.distributed as dist
from benchmarks.lab import faults
from benchmarks.lab.site import Hooks, Site, clock
from benchmarks.lab.workloads import data, data_parallel, models
from torch import nn

import tachoscope

TRIAL_STEPS = 9


def partner(step: int, rank: int, world_size: int) -> int:
    """Return with whom a rank exchanges in a step (circle method: all pairs meet once in world_size - 1 steps)."""
    turning, shift = world_size - 1, step % (world_size - 1)
    if rank == turning:
        return (shift * pow(2, -1, turning)) % turning
    other = (shift - rank) % turning
    return turning if other == rank else other


def swap(tensor: torch.Tensor, peer: int, rank: int) -> torch.Tensor:
    """Exchange a tensor with a peer, the lower rank speaking first; return the peer's."""
    theirs = torch.empty_like(tensor)
    if rank < peer:
        dist.send(tensor, peer)
        dist.recv(theirs, peer)
    else:
        dist.recv(theirs, peer)
        dist.send(tensor, peer)
    return theirs


def _steps(site: Site, count: int, hooks: list[Hooks]) -> list[tuple[float, float]]:
    """Train some steps; return (seconds of the step, seconds of the exchange) of each."""
    shape, measured = site.spec.shape, site.measured
    torch.manual_seed(site.spec.seed)
    net = models.MODELS[shape["model"]]()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    message = torch.zeros(int(shape["message_bytes"]) // 4)
    rows = []
    for step, ((inputs, wait), labels) in enumerate(data_parallel._waited(data_parallel.batches_of(site, count, hooks))):
        begin, measured.step = clock(), step
        time.sleep(shape["device_seconds"])
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        message[: len(net.head.bias)] = net.head.bias.grad
        talk = clock()
        theirs = swap(message, partner(step, site.rank, site.spec.world_size), site.rank)
        talked = clock() - talk
        net.head.bias.grad.add_(theirs[: len(net.head.bias)]).div_(2)
        optimizer.step()
        dist.barrier()
        rows.append((clock() - begin + wait, talked))
        if hooks:
            measured.wall.append(rows[-1][0])
            measured.wait.append(wait)
            measured.cpu.append(0.0)
            measured.add("exchange", talked)
            site.progress[site.rank] = step + 1
    return rows


def train(site: Site) -> None:
    """Train one rank; what a message takes longer than in the clean steps is what a slow link costs."""
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    data_parallel.join(site)
    clean = _steps(site, TRIAL_STEPS + 3, [])[3:]
    site.measured.clean_step_seconds = data_parallel.agree(site, statistics.median(wall for wall, _ in clean))
    usual = data_parallel.agree(site, statistics.median(talked for _, talked in clean))
    site.measured.notes["clean_exchange_seconds"] = usual
    hooks = [*faults.armed(site), Hooks()]
    for hook in hooks:
        if hook.before is not None:
            hook.before()
    dist.barrier()
    try:
        with tachoscope.watch(job=site.job):
            _steps(site, site.spec.steps, hooks)
            data_parallel.leave(site)
    finally:
        talked = site.measured.injected.pop("exchange", [])
        for planned in site.spec.faults:
            site.measured.injected[planned.slug] = [max(0.0, seconds - usual) for seconds in talked]
        site.measured.write(site.folder / f"rank-{site.rank}.json")


__all__ = ["data", "partner", "swap", "train"]
