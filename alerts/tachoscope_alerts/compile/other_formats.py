"""Objectives written for other tools: OpenSLO with queries of Prometheus, and Pyrra's resource.

What such a document cannot say is an error: slices of time that a gate opens, or whose entities may be missing, the age of a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tachoscope_alerts.compile.sli_expressions import bound_matcher, number, selector
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Slices, Slo
from tachoscope_core.errors import TachoscopeError

Document = dict[str, Any]
_WINDOW = "5m"


def openslo(slo: Slo) -> Document:
    """Return an objective as a document of OpenSLO v1.

    Raises:
        TachoscopeError: a query cannot say what it counts.
    """
    objective: Document = {"displayName": slo.name, "target": round(slo.target, 12)}
    indicator = slo.indicator
    if isinstance(indicator, Slices):
        of = _plain(slo, indicator)
        query = f"{of.reduce} by ({', '.join(of.by)}) ({selector(of.value)})"
        sli: Document = {"thresholdMetric": _source(query)}
        objective = {"displayName": slo.name, "op": of.comparison, "value": of.bound, "target": objective["target"]}
    else:
        kind, part, total = _events(slo)
        sli = {"ratioMetric": {"counter": True, kind: _source(part), "total": _source(total)}}
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {"name": slo.name, "displayName": slo.title, "labels": {"owner": slo.owner}},
        "spec": {
            "description": slo.description,
            "service": slo.area,
            "budgetingMethod": "Timeslices" if isinstance(indicator, Slices) else "Occurrences",
            "timeWindow": [{"duration": f"{slo.period_days:g}d", "isRolling": True}],
            "indicator": {"metadata": {"name": slo.name}, "spec": sli},
            "objectives": [objective],
        },
    }


def pyrra(slo: Slo) -> Document:
    """Return an objective as a resource of Pyrra.

    Raises:
        TachoscopeError: Pyrra has no indicator for what it counts.
    """
    return {
        "apiVersion": "pyrra.dev/v1alpha1",
        "kind": "ServiceLevelObjective",
        "metadata": {"name": slo.name, "labels": {"owner": slo.owner}},
        "spec": {
            "description": slo.description,
            "target": number(100 * slo.target),
            "window": f"{slo.period_days:g}d",
            "indicator": _pyrra_indicator(slo),
            "alerting": {"name": slo.alert},
        },
    }


def _pyrra_indicator(slo: Slo) -> Mapping[str, Any]:
    indicator, grouping = slo.indicator, {"grouping": list(slo.by)}
    if isinstance(indicator, Ratio) and indicator.bad is not None:
        parts = {"errors": {"metric": selector(indicator.bad)}, "total": {"metric": selector(indicator.total)}}
        return {"ratio": {**parts, **grouping}}
    if isinstance(indicator, AtMost):
        bucket, count = _bucket(indicator), selector(indicator.histogram, "_count")
        return {"latency": {"success": {"metric": bucket}, "total": {"metric": count}, **grouping}}
    raise TachoscopeError(f"{slo.name}: Pyrra counts errors, or events below a threshold", fix="write it for OpenSLO")


def _plain(slo: Slo, slices: Slices) -> Slices:
    if slices.gate is not None or slices.age or slices.missing == "bad":
        what = f"{slo.name}: no query of OpenSLO says when a gauge counts, or how old it is"
        raise TachoscopeError(what, fix="keep the objective here")
    return slices


def _events(slo: Slo) -> tuple[str, str, str]:
    """Return what kind of events the first query counts, that query, and the query of all."""
    indicator = slo.indicator
    if isinstance(indicator, Ratio):
        part = indicator.bad or indicator.good
        assert part is not None, "one of both is given"
        return "bad" if indicator.bad else "good", _sum(slo, selector(part)), _sum(slo, selector(indicator.total))
    assert isinstance(indicator, AtMost | MoreThan), "slices are not events"
    kind = "good" if isinstance(indicator, AtMost) else "bad"
    return kind, _sum(slo, _bucket(indicator)), _sum(slo, selector(indicator.histogram, "_count"))


def _bucket(indicator: AtMost | MoreThan) -> str:
    return selector(indicator.histogram, "_bucket", (bound_matcher(indicator.bound),))


def _sum(slo: Slo, series: str) -> str:
    return f"sum by ({', '.join(slo.by)}) (rate({series}[{_WINDOW}]))"


def _source(query: str) -> Document:
    return {"metricSource": {"type": "Prometheus", "spec": {"query": query}}}
