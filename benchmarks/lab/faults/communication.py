"""Communication: much to exchange, a network that becomes slow, and one slow link among several."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.lab import network, processes
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.rank_rows import exchange, exchange_above_before
from benchmarks.lab.site import Hooks, Site, clock
from benchmarks.lab.spec import Planned

TRIAL_BYTES = 4 << 20


def _exchange_seconds(site: Site, size_bytes: int, times: int = 5) -> float:
    """Return the median seconds of an exchange of so many bytes, from when all ranks are there; the same on all ranks."""
    buffer = torch.zeros(max(1, size_bytes // 4))
    seconds = []
    for _ in range(times):
        dist.barrier()
        begin = clock()
        dist.all_reduce(buffer)
        seconds.append(clock() - begin)
    found = torch.tensor(sorted(seconds)[times // 2], dtype=torch.float64)
    dist.all_reduce(found)
    return float(found) / site.spec.world_size


def large_gradients(site: Site, planned: Planned) -> Hooks:
    """The model has more gradients than its computing can hide: as many bytes more as the network needs the wanted time for."""
    per_byte = _exchange_seconds(site, TRIAL_BYTES) / TRIAL_BYTES
    size = round(site.target_seconds(planned) / per_byte)
    size = round(size * site.target_seconds(planned) / _exchange_seconds(site, size))
    site.measured.notes["ballast_bytes"] = size
    return Hooks(ballast_bytes=min(size, 256 << 20), timed_exchange=True)


def slow_network(site: Site, planned: Planned) -> Hooks:
    """In the middle of the run the loopback of the job begins to send no faster than a rate.

    Both directions of an exchange between two ranks pass through it. The rate is found by trying.
    """
    size = int(site.spec.shape["ballast_bytes"])
    fast = _exchange_seconds(site, size)
    wanted = fast + site.target_seconds(planned)
    rate = max(2.0 * size - network.BURST_BYTES, size / 2) / wanted
    for _ in range(4):
        seconds = _slowed(site, rate, size)
        rate *= min(max(seconds / wanted, 0.25), 4.0)
    site.measured.notes["bytes_per_second"] = rate

    def updated(step: int, training: object) -> None:
        if step + 1 == planned.first_step and site.rank == 0:
            network.limit("lo", rate)

    return Hooks(updated=updated, timed_exchange=True)


def _slowed(site: Site, rate: float, size: int) -> float:
    """Return the median seconds of an exchange at a rate, with the time of a clean step for the bucket to fill up before each."""
    import time

    dist.barrier()
    if site.rank == 0:
        network.limit("lo", rate)
    seconds = []
    buffer = torch.zeros(size // 4)
    for _ in range(4):
        time.sleep(site.seconds)
        dist.barrier()
        begin = clock()
        dist.all_reduce(buffer)
        seconds.append(clock() - begin)
    if site.rank == 0:
        network.unlimit("lo")
    found = torch.tensor(sorted(seconds)[2], dtype=torch.float64)
    dist.all_reduce(found)
    return float(found) / site.spec.world_size


def slow_card(site: Site, planned: Planned) -> Hooks:
    """What one rank sends and receives passes a slow card: the rate is set on its card and on the bridge's port to it."""
    if site.rank != planned.rank:
        return Hooks()
    rate = _rate(site, planned)

    def before() -> None:
        network.limit("eth0", rate)
        _on_bridge(site, f"port{site.rank}", rate)

    site.measured.notes["bytes_per_second"] = rate
    return Hooks(before=before)


def _on_bridge(site: Site, port: str, rate: float) -> None:
    processes.enter_namespace(site.namespaces[-1])
    try:
        network.limit(port, rate)
    finally:
        processes.enter_namespace(site.namespaces[site.rank])


def slow_pair(site: Site, planned: Planned) -> Hooks:
    """What two ranks send each other passes a slow link; to the others they send as before."""
    pair = [int(planned.parameters["rank"]), int(planned.parameters["peer"])]
    if site.rank not in pair:
        return Hooks()
    peer = next(rank for rank in pair if rank != site.rank)
    rate = _rate(site, planned)
    site.measured.notes["bytes_per_second"] = rate
    return Hooks(before=lambda: network.limit_to("eth0", network.address_of(peer), rate))


def _rate(site: Site, planned: Planned) -> float:
    """Return the rate at which a step's messages over the slow link take the wanted time longer: a bucketful passes at once.

    A message goes there and back; of one pair it is sent in one step of as many as there are rounds.
    """
    size = int(site.spec.shape["message_bytes"])
    rounds = site.spec.world_size - 1 if planned.cause == "pair" else 1
    free = min(network.BURST_BYTES, size // 2)
    return (size - free) * 2 / (site.target_seconds(planned) * rounds)


def _ballast(dice: Random, ratio: float) -> dict[str, Any]:
    return {"workers": 0, "ballast_bytes": dice.choice([1 << 20, 3 << 19, 2 << 20])}


def _link(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    rank, peer = dice.sample(range(int(shape["world_size"])), 2)
    return {"rank": rank, "peer": peer}


def _card(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {"rank": dice.randrange(int(shape["world_size"]))}


_CARDS: dict[str, Any] = {"needs": ("network_cards",), "one_rank": True, "network": "cards", "world_size": 4, "steps": 84}
CAUSES = (
    Cause("comm_exposed", "gradients", "ddp", large_gradients, seconds=exchange, shape=lambda dice, ratio: {"workers": 0}),
    Cause(
        "network_degraded",
        "token_bucket",
        "ddp",
        slow_network,
        seconds=exchange_above_before,
        needs=("two_cores", "network_shaping"),
        shape=_ballast,
        midway=True,
        network="loopback",
    ),
    Cause("slow_link", "card", "exchange", slow_card, _card, **_CARDS),
    Cause("slow_link", "pair", "exchange", slow_pair, _link, **_CARDS),
)
