"""All tests of one host."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tachoscope_core.storage.preflights import Measurement, NodeResult
from tachoscope_preflight import compute, loopback, storage
from tachoscope_preflight.hardware import link_bytes_per_second, link_fault
from tachoscope_preflight.repeat import FULL, QUICK, Effort, failed

LINK = "link_bytes_per_second"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be tested, and how thoroughly.

    Attributes:
        storage: a folder; None: none. interface: of the network; None: the one that the host's name leads to.
        backend: that carries what hosts exchange.
    """

    quick: bool = False
    storage: str | None = None
    interface: str | None = None
    backend: str = "gloo"

    @property
    def effort(self) -> Effort:
        return QUICK if self.quick else FULL


def measure(torch: Any, wanted: Wanted, groups: Collection[str] = ()) -> NodeResult:
    """Return what this host measured.

    Args:
        groups: of tests, as `group_of` names them; empty: all.
    """
    tests: dict[str, Callable[[], Iterator[Measurement]]] = {
        "compute": lambda: compute.measure(torch, wanted.effort),
        "loopback": lambda: loopback.measure(wanted.effort),
        "link": lambda: _link(wanted.interface),
        "storage": lambda: storage.measure(wanted.storage, wanted.effort) if wanted.storage else iter(()),
    }
    found = [one for name, test in tests.items() if not groups or name in groups for one in test()]
    return NodeResult(host=socket.gethostname(), time=time.time(), measurements=found)


def group_of(name: str) -> str:
    """Return which tests measure a rate; those of a group are made together."""
    head = name.partition("_")[0]
    return head if head in {"loopback", "link", "storage"} else "compute"


def _link(interface: str | None) -> Iterator[Measurement]:
    """Yield what a network interface has negotiated; nothing of one that does not say, as a virtual one."""
    if interface is None:
        return
    if why := link_fault(interface):
        yield failed(LINK, f"{interface}: {why}", device=interface, broken=True)
    elif (speed := link_bytes_per_second(interface)) is not None:
        yield Measurement(name=LINK, device=interface, comparable_with=interface, median=speed, repetitions=1)
