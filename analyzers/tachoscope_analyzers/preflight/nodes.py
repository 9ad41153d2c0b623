"""Which rates of which hosts are unfit, or cannot be judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tachoscope_analyzers.preflight.reference import Reference, reference
from tachoscope_core.report.preflight import JudgedMeasurement, Verdict
from tachoscope_core.storage.preflights import Measurement, NodeResult


class Fleet:
    """Rates of hosts, by what they may be compared with; the newest results of each host."""

    def __init__(self, results: Iterable[NodeResult] = ()) -> None:
        self._rates: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for result in results:
            self.add(result)

    def add(self, result: NodeResult) -> None:
        for one in result.measurements:
            if one.median is not None:
                self._rates[one.name, one.comparable_with][result.host].append(one.median)

    def of_others(self, one: Measurement, host: str) -> tuple[Reference | None, int]:
        """Return what is usual on other hosts, and how many there are."""
        others = {name: rates for name, rates in self._rates.get((one.name, one.comparable_with), {}).items() if name != host}
        return reference(others), len(others)


def judge_nodes(results: Sequence[NodeResult], fleet: Fleet, nominal: Mapping[str, float]) -> list[JudgedMeasurement]:
    """Return the verdict on each rate.

    Args:
        fleet: with the results themselves. nominal: the least rate by name.
    """
    return [judge(one, result.host, fleet, nominal.get(one.name)) for result in results for one in result.measurements]


def judge(one: Measurement, host: str, fleet: Fleet, nominal: float | None) -> JudgedMeasurement:
    """Return the verdict on a rate of a host."""
    usual, hosts = fleet.of_others(one, host)
    verdict, why = _verdict(one, usual, hosts, nominal)
    limits = [nominal] if nominal is not None else []
    limits += [usual.least] if usual is not None and usual.tells else []
    return JudgedMeasurement(
        host=host,
        name=one.name,
        device=one.device,
        verdict=verdict,
        why=why,
        median=one.median,
        spread_ratio=one.spread_ratio,
        repetitions=one.repetitions,
        rounds=one.rounds,
        least=max(limits, default=None),
        usual=usual.usual if usual is not None else None,
        compared_hosts=hosts,
    )


def _verdict(one: Measurement, usual: Reference | None, hosts: int, nominal: float | None) -> tuple[Verdict, str]:
    if one.median is None:
        return ("unfit" if one.broken else "not judged"), one.error
    if nominal is not None and one.median < nominal:
        return "unfit", "below --least"
    if usual is not None and usual.tells:
        if one.median < usual.least:
            return "unfit", f"{1 - one.median / usual.usual:.0%} below the median of {hosts} other hosts"
        return "fit", f"as on {hosts} other hosts"
    if nominal is not None:
        return "fit", "not below --least"
    if usual is not None:
        return "not judged", f"the {hosts} other hosts differ too much from each other"
    return "not judged", f"nothing to compare with: {hosts} other host{'' if hosts == 1 else 's'} of this hardware in the store"
