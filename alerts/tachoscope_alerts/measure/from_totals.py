"""Objectives of a service over one window, from what its histograms and outcomes gained: by the evaluator, as of two scrapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tachoscope_alerts.measure.evaluator import bad_and_total, selectors
from tachoscope_alerts.measure.events import EventSums
from tachoscope_alerts.measure.stored_samples import Series
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.files import path_of
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Slices, Slo
from tachoscope_core.metrics.serving import REQUESTS
from tachoscope_core.report.serving import ObjectiveResult
from tachoscope_core.servers import OWN, catalogue
from tachoscope_core.servers.snapshot import Buckets

_AREA = "inference"
_TIMING = Timing()
_END = 20 * _TIMING.interval
_TIMES_MS = np.array([_END - _TIMING.base, _END]) * 1000


def of_service(
    service: str, models: Sequence[str], totals: Mapping[str, Buckets], outcomes: Mapping[str, float]
) -> list[ObjectiveResult]:
    """Return how a service met the objectives of inference in alerts/slos here, or else the shipped ones.

    Args:
        models: that it served; the label `model` is the name of the only one. totals: what each histogram gained, by our names.

    Raises:
        TachoscopeError: a file of objectives cannot be read.
    """
    labels = {"service": service, "model": models[0] if len(models) == 1 else ""}
    series = _series(labels, totals, outcomes)
    slos = [slo for slo in slo_files.load([path_of("slos")]) if slo.area == _AREA and not isinstance(slo.indicator, Slices)]
    return [result for slo in slos if (result := _result(slo, series)) is not None]


def _series(
    labels: Mapping[str, str], totals: Mapping[str, Buckets], outcomes: Mapping[str, float]
) -> Mapping[str, Sequence[Series]]:
    found: dict[str, list[Series]] = defaultdict(list)
    for one in _all_series(labels, totals, outcomes):
        found[one.metric].append(one)
    return found


def _all_series(labels: Mapping[str, str], totals: Mapping[str, Buckets], outcomes: Mapping[str, float]) -> Iterator[Series]:
    """Yield counters that were 0 at the window's begin, under the names by which rules read them."""

    def of(metric: str, value: float, **more: str) -> Series:
        there = {name: text for name, text in {**labels, **more}.items() if text}
        return Series(metric, there, _TIMES_MS.astype(np.int64), np.array([0.0, value]))

    for outcome, count in outcomes.items():
        yield of(REQUESTS.name, count, outcome=outcome)
    for name, signal in catalogue(OWN).signals.items():
        if isinstance(signal.metric, str) and signal.metric and name in totals:
            yield of(f"{signal.metric}_count", totals[name].count)
            for bound, count in zip(totals[name].bounds, totals[name].counts, strict=False):
                yield of(f"{signal.metric}_bucket", count, le=str(bound))


def _result(slo: Slo, series: Mapping[str, Sequence[Series]]) -> ObjectiveResult | None:
    """Return how an objective was met; None: it counts nothing that a service can report so."""
    metric = selectors(slo)[0].metric
    signals = {one.metric: name for name, one in catalogue(OWN).signals.items() if isinstance(one.metric, str)}
    signal = "outcomes" if metric == REQUESTS.name else signals.get(metric)
    if signal is None:
        return None
    events = bad_and_total(slo, series, _END - _TIMING.interval, _END, _TIMING)
    sums = EventSums()
    for group, total in events.total.items():
        bad = events.bad.get(group, np.zeros(1))
        sums += EventSums(float(np.nansum(bad)) * _TIMING.base, float(np.nansum(total)) * _TIMING.base, 1)
    bound = slo.indicator.bound if isinstance(slo.indicator, AtMost | MoreThan) else None
    ratio = sums.error_ratio
    if ratio is None:
        return ObjectiveResult(
            name=slo.name, signal=signal, bound_seconds=bound, target=slo.target, good=None, bad=0, total=0, state="not_measured"
        )
    below = ratio > slo.budget
    return ObjectiveResult(
        name=slo.name,
        signal=signal,
        bound_seconds=bound,
        target=slo.target,
        good=1.0 - ratio,
        bad=round(sums.bad, 6),
        total=round(sums.total, 6),
        state="met" if not below else "broken" if round(sums.bad, 6) >= max(slo.least_bad_events, 1.0) else "too_few",
    )
