"""Which hosts and which links are bad, from what each pair of hosts exchanged.

A host is named if it is bad with most of its partners, and with two at least; the one that explains most bad pairs first, and its
pairs are then explained. A bad pair that is left is a bad link. If most hosts would be named it is what they share.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tachoscope_analyzers.data.thresholds import preflight_threshold as threshold
from tachoscope_core.report.preflight import Exchange

DECIDED_BY = (
    "a host is named if its pairs with two or more partners, and with most of them, are bad; a bad pair that no named host "
    "explains is a bad link"
)

Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class Blame:
    """`hosts`: the named ones. `links`: pairs that no named host explains. `shared`: most hosts are bad with most others."""

    hosts: tuple[str, ...]
    links: tuple[Pair, ...]
    shared: bool = False


Rate = Callable[[Exchange], float | None]
RATES: dict[str, Rate] = {
    "exchange_bytes_per_second": lambda one: one.bytes_per_second,
    "exchange_round_trips_per_second": lambda one: one.round_trips_per_second,
}
"""By the name under which they are stored and given with --least."""
_RATIOS = {"exchange_bytes_per_second": "pair_bytes_ratio", "exchange_round_trips_per_second": "pair_round_trips_ratio"}
FAILED = "error"


def of_host(exchanges: Iterable[Exchange], host: str, rate: Rate) -> list[float]:
    """Return a rate of all exchanges in which a host took part."""
    found = (rate(one) for one in exchanges if host in (one.sender, one.receiver))
    return [one for one in found if one is not None]


def within_run(exchanges: Sequence[Exchange], name: str) -> float:
    """Return the rate below which a pair is bad compared with the others of the run; 0.0: there is none."""
    return threshold(_RATIOS[name]) * (_best_quarter(exchanges, name) or 0.0)


def _best_quarter(exchanges: Sequence[Exchange], name: str) -> float | None:
    """Return what a pair of this run should reach; None: three hosts are needed for that.

    With one bad host of four half of all pairs are bad: it is what the best quarter reaches.
    """
    found = [value for one in exchanges if (value := RATES[name](one)) is not None]
    if len({one.sender for one in exchanges}) < 3 or len(found) < 2:
        return None
    return statistics.quantiles(found, n=4)[2]


def marked(exchanges: Sequence[Exchange], nominal: Mapping[str, float], fleet: Mapping[str, float] | None = None) -> list[Exchange]:
    """Return the exchanges with what is bad of each: that it failed, or is below a limit.

    Args:
        nominal, fleet: limits by name. Below the fleet's a pair is bad unless the best of this run are near it: what is busy now
            slows all.
    """
    limits = {name: max(within_run(exchanges, name), nominal.get(name, 0.0), _now(exchanges, name, fleet or {})) for name in RATES}
    return [msgspec.structs.replace(one, bad=_bad(one, limits)) for one in exchanges]


def _bad(one: Exchange, limits: Mapping[str, float]) -> list[str]:
    if one.error:
        return [FAILED]
    return [name for name, rate in RATES.items() if (rate(one) or 0.0) < limits[name]]


def _now(exchanges: Sequence[Exchange], name: str, fleet: Mapping[str, float]) -> float:
    best = _best_quarter(exchanges, name)
    least = fleet.get(name, 0.0)
    return least if best is None else min(least, (1 - threshold("pair_share")) * best)


def blame(exchanges: Sequence[Exchange], unfit: Collection[str] = ()) -> Blame:
    """Return what explains the bad pairs with the fewest hosts and links.

    Args:
        unfit: hosts that are so by their own tests: who computes slowly also exchanges slowly, and a link is not to blame for that.
    """
    pairs = {frozenset((one.sender, one.receiver)) for one in exchanges}
    bad = {frozenset((one.sender, one.receiver)) for one in exchanges if one.bad}
    hosts = sorted({host for pair in pairs for host in pair})
    named: list[str] = []
    left, tested = ({pair for pair in of if pair.isdisjoint(unfit)} for of in (bad, pairs))
    while worst := _worst(hosts, left, tested):
        named.append(worst)
        left = {pair for pair in left if worst not in pair}
        tested = {pair for pair in tested if worst not in pair}
    if len(named) > len(hosts) / 2 or (pairs and bad == pairs and len(hosts) > 2):
        return Blame((), (), shared=True)
    return Blame(tuple(sorted(named)), tuple(sorted(left, key=sorted)))


def _worst(hosts: Iterable[str], bad: set[Pair], tested: set[Pair]) -> str | None:
    """Return the host with the most bad pairs, if they are two at least and most of its pairs."""
    counts = {host: (sum(host in pair for pair in bad), sum(host in pair for pair in tested)) for host in hosts}
    able = [host for host, (count, of) in counts.items() if count >= 2 and count > of / 2]
    return max(able, key=lambda host: (counts[host][0], counts[host][0] / counts[host][1]), default=None)
