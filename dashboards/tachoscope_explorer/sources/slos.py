"""What the page of objectives reads: their report, the moments that a backtest replays, and when alerts fired."""

from __future__ import annotations

import time
from dataclasses import replace

import streamlit as st

from tachoscope_alerts.measure import alert_history as history
from tachoscope_alerts.measure import from_samples as samples_source
from tachoscope_alerts.measure import parquet_cache
from tachoscope_alerts.measure.alert_history import History
from tachoscope_alerts.measure.evaluator import Events, Group
from tachoscope_alerts.measure.from_prometheus import PrometheusSource
from tachoscope_alerts.measure.from_samples import SamplesSource
from tachoscope_alerts.report import backtest
from tachoscope_alerts.report import report as report_module
from tachoscope_alerts.report.backtest import Backtest
from tachoscope_alerts.report.schema import SloReport
from tachoscope_alerts.spec import files, policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.redaction import redact
from tachoscope_explorer.page.settings import Settings
from tachoscope_show.text import runbook_pages

FRESH_SECONDS = 300.0
"""For so long a report is taken for the present, unless somebody asks for it again: it says its time. Of a Prometheus without
recorded events it takes half a minute."""


@st.cache_resource(max_entries=1, show_spinner=False)
def objectives() -> dict[str, Slo]:
    """Return the objectives by name: those of a folder `alerts/slos` here, else those that came with tachoscope.

    Raises:
        TachoscopeError: a spec cannot be read.
    """
    return {slo.name: slo for slo in slo_files.load([files.path_of("slos")])}


def clear_cache() -> None:
    """Have reports and histories read again at the next look."""
    _report.clear()
    fired.clear()


def _source(store: str, prometheus: str) -> SamplesSource | PrometheusSource:
    return PrometheusSource(prometheus) if prometheus else samples_source.of_store(store, cache=parquet_cache.folder())


@st.cache_resource(max_entries=4, ttl=FRESH_SECONDS, show_spinner="Going through the samples of all objectives …")
def _report(store: str, prometheus: str, end: float | None, days: float | None) -> SloReport:
    return report_module.report(list(objectives().values()), _source(store, prometheus), end or time.time(), period_days=days)


def report(settings: Settings, end: float | None, days: float | None) -> SloReport:
    """Return how objectives stand at a time, None: now, over so many days, None: each one's own period.

    Raises:
        TachoscopeError: the source cannot be read.
    """
    return _report(settings.store_url, settings.prometheus_url, end, days)


Moments = tuple[Events, tuple[str, ...]]
"""Events of one budget, and what is to be known of their source."""


@st.cache_resource(max_entries=8, show_spinner="Reading what was recorded of the objective …")
def _moments(store: str, prometheus: str, name: str, threshold: float | None, group: Group, start: float, end: float) -> Moments:
    slo = backtest.changed(objectives()[name], threshold=threshold)
    source = _source(store, prometheus)
    events = backtest.recorded(slo, source, start, end, Timing())
    bad, total = ({group: rows[group]} if group in rows else {} for rows in (events.bad, events.total))
    return replace(events, bad=bad, total=total), tuple(source.notes)


def backtest_of(
    settings: Settings, name: str, labels: dict[str, str], end: float, days: float, target: float, threshold: float | None
) -> Backtest:
    """Return the backtest of one budget of an objective, by another target and threshold.

    Raises:
        TachoscopeError: the change is none that can be judged, or the source cannot be read.
    """
    slo = objectives()[name]
    other = backtest.changed(slo, target=target, threshold=threshold)
    start, end = backtest.window(end, days, Timing())
    group = tuple(labels.get(label, "") for label in slo.by)

    def moments(bound: float | None) -> Moments:
        return _moments(settings.store_url, settings.prometheus_url, name, bound, group, start, end)

    events, notes = moments(backtest.threshold_of(slo))
    others, more = moments(backtest.threshold_of(other))
    where, told = redact(settings.prometheus_url or settings.store_url), tuple(dict.fromkeys([*notes, *more]))
    return backtest.compared(slo, other, events, others, start, end, source=where, notes=told)


@st.cache_resource(max_entries=4, ttl=FRESH_SECONDS, show_spinner="Asking when alerts fired …")
def fired(prometheus: str, start: float, end: float) -> History:
    """Return what fired, as a Prometheus has it.

    Raises:
        TachoscopeError: it does not answer.
    """
    return history.history(prometheus, start, end)


@st.cache_resource(max_entries=1, show_spinner=False)
def runbook_base() -> str:
    """Return where runbooks are served, as the policy says; empty while that is the example's address, where nothing is."""
    base = policy.load(files.path_of("policy.yaml")).runbook_base
    return "" if "example.com" in base else base


def runbook_text(alert: str) -> str:
    """Return the text of an alert's runbook, empty where it is not installed; an alert that is not a name has none."""
    return runbook_pages.text_of(f"runbooks/{alert}.md") if alert.isalnum() else ""
