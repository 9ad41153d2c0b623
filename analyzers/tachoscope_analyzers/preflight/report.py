"""The report of a preflight: the verdict on each host, and on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tachoscope_analyzers.preflight import exchange
from tachoscope_analyzers.preflight.nodes import judge_nodes
from tachoscope_analyzers.preflight.pairs import DECIDED_BY, Blame
from tachoscope_core.report.preflight import BadLink, Exchange, JudgedHost, JudgedMeasurement, PreflightReport, Verdict
from tachoscope_core.storage.preflights import NodeResult


def report(
    results: Sequence[NodeResult],
    history: Sequence[NodeResult],
    nominal: Mapping[str, float],
    *,
    exchanges: Sequence[Exchange] = (),
    exchanges_like: str = "",
    absent: Mapping[str, str] | None = None,
    clocks: Sequence[JudgedMeasurement] = (),
    ring_bytes_per_second: float | None = None,
    ring_error: str = "",
    notes: Sequence[str] = (),
) -> PreflightReport:
    """Return the verdict on hosts and links.

    Args:
        history: results of all hosts in the store. nominal: the least rate by name.
        exchanges_like: what makes exchanges comparable. absent: why a host took no part, by host.
        ring_error: why an exchange of all hosts failed; no host is named for it.
    """
    of = exchange.limits(exchanges, history, nominal, exchanges_like)
    own = judge_nodes(results, history, nominal)
    seen, guilty, of_exchanges = exchange.judge(exchanges, of, {one.host for one in own if one.verdict == "unfit"})
    measurements = [*own, *of_exchanges, *clocks]
    hosts = [_host(result.host, measurements) for result in results]
    hosts += [JudgedHost(host=host, verdict="unfit", why=why) for host, why in (absent or {}).items()]
    return PreflightReport(
        verdict=_overall(hosts, guilty, ring_error),
        hosts=hosts,
        links=[BadLink(one=one, other=other) for one, other in (sorted(link) for link in guilty.links)],
        measurements=measurements,
        exchanges=list(seen),
        decided_by=DECIDED_BY if exchanges else "",
        ring_bytes_per_second=ring_bytes_per_second,
        notes=[*notes, *([f"the ring failed: {ring_error}"] if ring_error else [])],
    )


def _host(host: str, measurements: Sequence[JudgedMeasurement]) -> JudgedHost:
    own = [one for one in measurements if one.host == host]
    for verdict in ("unfit", "not judged"):
        if found := [one for one in own if one.verdict == verdict]:
            return JudgedHost(host=host, verdict=verdict, why=_words(found))
    return JudgedHost(host=host, verdict="fit" if own else "not judged", why="" if own else "nothing was measured")


def _words(found: Sequence[JudgedMeasurement]) -> str:
    """Return each reason with all rates that it is of."""
    by_reason: dict[str, list[str]] = {}
    for one in found:
        by_reason.setdefault(one.why, []).append(f"{one.name} of {one.device}" if one.device else one.name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())


def _overall(hosts: Sequence[JudgedHost], guilty: Blame, ring_error: str) -> Verdict:
    verdicts = {one.verdict for one in hosts}
    if "unfit" in verdicts or guilty.links or guilty.shared:
        return "unfit"
    return "fit" if verdicts == {"fit"} and not ring_error else "not judged"
