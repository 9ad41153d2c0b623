"""The verdict on what hosts exchanged: limits, what is bad by them, and who is to blame."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tachoscope_analyzers.preflight.pairs import FAILED, RATES, Blame, blame, marked, of_host
from tachoscope_analyzers.preflight.reference import Reference, reference
from tachoscope_core.report.preflight import Exchange, JudgedMeasurement, Verdict
from tachoscope_core.storage.preflights import Measurement, NodeResult


@dataclass(frozen=True, slots=True)
class Limits:
    """By name of the rate: what is usual, of how many hosts, where there are enough to compare with; and the given least rates."""

    usual: dict[str, Reference]
    nominal: dict[str, float]

    @property
    def fleet(self) -> dict[str, float]:
        return {name: one.least for name, one in self.usual.items()}

    def least(self, name: str) -> float | None:
        return max((limits[name] for limits in (self.fleet, self.nominal) if name in limits), default=None)


def measurements(exchanges: Sequence[Exchange], host: str, comparable_with: str) -> list[Measurement]:
    """Return what the store keeps of a host's exchanges: the median over its partners."""
    found = ((name, of_host(exchanges, host, rate)) for name, rate in RATES.items())
    return [
        Measurement(name=name, comparable_with=comparable_with, median=statistics.median(rates), repetitions=len(rates))
        for name, rates in found
        if rates
    ]


def limits(
    exchanges: Sequence[Exchange], history: Sequence[NodeResult], nominal: Mapping[str, float], comparable_with: str
) -> Limits:
    """Return what is usual in the newest exchanges of all hosts in the store and in this run, and what is nominal."""
    usual: dict[str, Reference] = {}
    for name, rate in RATES.items():
        by_host: dict[str, list[float]] = {}
        for result in history:
            own = (one.median for one in result.measurements if (one.name, one.comparable_with) == (name, comparable_with))
            by_host.setdefault(result.host, []).extend(value for value in own if value is not None)
        for host in {one.sender for one in exchanges}:
            if rates := of_host(exchanges, host, rate):
                by_host.setdefault(host, []).append(max(rates) if len(rates) < 2 else statistics.quantiles(rates, n=4)[2])
        found = reference(by_host, "pair_share")
        if found is not None and found.tells:
            usual[name] = found
    return Limits(usual, {name: nominal[name] for name in RATES if name in nominal})


def judge(
    exchanges: Sequence[Exchange], of: Limits, unfit: Collection[str]
) -> tuple[list[Exchange], Blame, list[JudgedMeasurement]]:
    """Return the exchanges with the bad ones marked, who is to blame, and the verdict on each host's rates.

    Args:
        unfit: hosts that are so by their own tests.
    """
    seen = marked(exchanges, of.nominal, of.fleet)
    guilty = blame(seen, unfit)
    hosts = sorted({host for one in exchanges for host in (one.sender, one.receiver)})
    return seen, guilty, [one for host in hosts for one in _of_host(seen, host, guilty, of)]


def _of_host(exchanges: Sequence[Exchange], host: str, guilty: Blame, of: Limits) -> Iterator[JudgedMeasurement]:
    own = [one for one in exchanges if host in (one.sender, one.receiver)]
    for name, rate in RATES.items():
        rates = of_host(own, host, rate)
        usual = of.usual.get(name)
        verdict, why = _verdict(host, name, own, guilty, of)
        yield JudgedMeasurement(
            host=host,
            name=name,
            verdict=verdict,
            why=why,
            median=statistics.median(rates) if rates else None,
            repetitions=len(rates),
            least=of.least(name),
            usual=usual.usual if usual else None,
            compared_hosts=usual.hosts if usual else 0,
        )


def _verdict(host: str, name: str, own: Sequence[Exchange], guilty: Blame, of: Limits) -> tuple[Verdict, str]:
    bad = {frozenset((one.sender, one.receiver)) for one in own if name in one.bad or FAILED in one.bad}
    if bad and guilty.shared:
        return "unfit", "bad between most hosts: what they share, such as a switch or the network's settings"
    if bad and host in guilty.hosts:
        partners = {one.sender for one in own} | {one.receiver for one in own}
        return "unfit", f"bad with {len(bad)} of {len(partners) - 1} partners"
    if name not in of.usual and name not in of.nominal:
        return "not judged", "not compared: too few hosts in the store and in this run, or they differ too much"
    able = [one for one in own if not one.bad and not {one.sender, one.receiver} & {*guilty.hosts}]
    if any((RATES[name](one) or 0.0) < of.fleet.get(name, 0.0) for one in able):
        return "not judged", "slower than usual, as other pairs at the same time: what they share, or a busy time"
    return "fit", "but for pairs that are bad for another reason" if bad else "as between other hosts, or not below --least"
