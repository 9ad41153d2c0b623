"""Which rates of which hosts are unfit, or cannot be judged."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tachoscope_analyzers.data.thresholds import preflight_threshold as threshold
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

    def of_others(self, one: Measurement, host: str) -> dict[str, list[float]]:
        """Return the comparable rates of other hosts, by host."""
        return {name: rates for name, rates in self._rates.get((one.name, one.comparable_with), {}).items() if name != host}


def judge_nodes(
    results: Sequence[NodeResult], history: Sequence[NodeResult], nominal: Mapping[str, float], *, excuse: bool = True
) -> list[JudgedMeasurement]:
    """Return the verdict on each rate of hosts that were measured at the same time.

    Args:
        history: results of all hosts in the store. nominal: the least rate by name.
        excuse: whether a host that is as slow as the others were at the same time is not judged.
    """
    fleet, now = Fleet(history), Fleet(results)
    return [
        judge(one, result.host, fleet, nominal.get(one.name), now, excuse=excuse)
        for result in results
        for one in result.measurements
    ]


def judge(
    one: Measurement, host: str, fleet: Fleet, nominal: float | None, now: Fleet | None = None, *, excuse: bool = True
) -> JudgedMeasurement:
    """Return the verdict on a rate of a host.

    Args:
        now: what was measured at the same time. It joins the fleet only where that is too small: slow hosts would widen it.
    """
    others, beside = fleet.of_others(one, host), now.of_others(one, host) if now is not None else {}
    if len(others) < threshold("hosts"):
        others = {name: [*others.get(name, []), *beside.get(name, [])] for name in {*others, *beside}}
    usual, hosts = reference(others), len(others)
    verdict, why = _verdict(one, usual, hosts, nominal)
    if verdict == "unfit" and excuse and _alike(one, beside, nominal):
        verdict, why = "not judged", f"{why}, as {len(beside)} hosts at the same time: what they share, or a busy time"
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


def _alike(one: Measurement, beside: Mapping[str, Sequence[float]], nominal: float | None) -> bool:
    """Return whether a rate is only as low as those of other hosts at the same time."""
    if one.median is None or one.median < (nominal or 0.0) or len(beside) < threshold("beside"):
        return False
    return one.median >= (1 - threshold("share")) * statistics.median(statistics.median(rates) for rates in beside.values())


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
    needed = f"{threshold('hosts'):.0f} are needed"
    return "not judged", f"not compared: {hosts} other host{'' if hosts == 1 else 's'} of this hardware in the store, {needed}"
