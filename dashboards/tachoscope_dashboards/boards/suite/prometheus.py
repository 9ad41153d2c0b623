"""Panels about the Prometheus that everything stands on: its rules, alerts, and how far back it remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import RATE
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, Link, PanelText, PlacedPanel, Query, Unit, stat, timeseries

_NO_PROMETHEUS = "Prometheus does not scrape itself"
_LEAST_ONE = (ColorStep(float("-inf"), palette.BAD), ColorStep(1.0, palette.OK))


def rules(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return whether rules are evaluated in time, and whether alerts get out. `where`: matchers of Prometheus's own series."""
    not_measured = [runbook(policy, "TrainingObjectivesNotMeasured"), runbook(policy, "InferenceObjectivesNotMeasured")]
    return [
        _in_time(where, not_measured),
        _left_out(where, not_measured),
        _alerts(policy, where),
        *_servers(policy, where),
        *_memory(policy, where),
    ]


def _in_time(where: str, leads: Sequence[Link]) -> PlacedPanel:
    each, last = "max by (instance, rule_group)", f"prometheus_rule_group_last_duration_seconds{{{where}}}"
    of_interval = f"{each} ({last}) / {each} (prometheus_rule_group_interval_seconds{{{where}}})"
    slowest = f"topk(5, {each} (max_over_time({last}[$__range] @ end())))"
    return timeseries(
        "Rules: time of an evaluation, of the interval",
        PanelText(
            "How long a group of rules took, over how often it has to be done: of the five groups that ever took longest.",
            "far below 1",
            "at 1 evaluations are left out, and windows have holes: more processors for Prometheus, or fewer series",
            _NO_PROMETHEUS,
        ),
        [
            Query(
                f'label_replace({of_interval} and on (instance, rule_group) {slowest}, "group", "$1", "rule_group", ".*;(.*)")',
                "{{group}}",
            )
        ],
        unit="percentunit",
        width=8,
        steps=[ColorStep(1.0, palette.BAD)],
        links=leads,
    )


def _left_out(where: str, leads: Sequence[Link]) -> PlacedPanel:
    return timeseries(
        "Rules: failed and left out",
        PanelText(
            "Evaluations a second that failed, and that were left out because the one before still went on.",
            "0",
            "Prometheus's log says which rule fails and why; left out: see how long groups take",
            _NO_PROMETHEUS,
        ),
        [
            Query(f"sum(rate(prometheus_rule_evaluation_failures_total{{{where}}}{RATE}))", "failed"),
            Query(f"sum(rate(prometheus_rule_group_iterations_missed_total{{{where}}}{RATE}))", "left out"),
        ],
        unit="cps",
        width=8,
        colors={"failed": palette.BAD, "left out": palette.WARN},
        links=leads,
    )


def _alerts(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Alerts that did not get out",
        PanelText(
            "Alerts a second that Prometheus could not hand to an Alertmanager, or dropped.",
            "0",
            "Alertmanager is unreachable or refuses them: no notification is sent; the dead man's switch raises the alarm",
            _NO_PROMETHEUS,
        ),
        [
            Query(f"sum(rate(prometheus_notifications_errors_total{{{where}}}{RATE}))", "refused"),
            Query(f"sum(rate(prometheus_notifications_dropped_total{{{where}}}{RATE}))", "dropped"),
        ],
        unit="cps",
        width=8,
        colors={"refused": palette.WARN, "dropped": palette.BAD},
        links=[runbook(policy, "Watchdog")],
    )


def _servers(policy: Policy, where: str) -> list[PlacedPanel]:
    watchdog = runbook(policy, "Watchdog")
    return [
        _number(
            "Alertmanagers",
            (
                "Alertmanagers that Prometheus knows, of the server that knows the fewest.",
                "1 or more",
                "see `alerting` in Prometheus's configuration, and its discovery",
            ),
            f"min(prometheus_notifications_alertmanagers_discovered{{{where}}})",
            watchdog,
            steps=_LEAST_ONE,
        ),
        _number(
            "Configuration taken",
            (
                "Whether all servers took their configuration, rules among it, when they last read it.",
                "yes",
                "`promtool check config` names the fault; until then new rules do not hold",
            ),
            f"min(prometheus_config_last_reload_successful{{{where}}})",
            watchdog,
            steps=_LEAST_ONE,
            texts={"1": "yes", "0": "no"},
        ),
    ]


def _memory(policy: Policy, where: str) -> list[PlacedPanel]:
    short = runbook(policy, "PrometheusRetentionShort")
    return [
        _number(
            "Samples reach back",
            (
                "Age of the oldest sample, of the server that has the youngest.",
                "over 35 days, once the server is that old: budgets are of 28 days",
                "give it more space, or a longer retention",
            ),
            f"min(time() - (prometheus_tsdb_lowest_timestamp_seconds{{{where}}} > 0))",
            short,
            unit="s",
        ),
        _number(
            "Series in Prometheus",
            (
                "Series that are in memory, of all servers.",
                "level while nodes and jobs stay the same",
                "it grows without more of them: a label with too many values; see the series of an agent above",
            ),
            f"sum(prometheus_tsdb_head_series{{{where}}})",
            short,
        ),
    ]


def _number(
    title: str,
    words: tuple[str, str, str],
    expr: str,
    link: Link,
    *,
    unit: Unit = "short",
    steps: Sequence[ColorStep] = (),
    texts: Mapping[str, str] | None = None,
) -> PlacedPanel:
    about = PanelText(*words, _NO_PROMETHEUS)
    return stat(title, about, Query(expr), unit=unit, width=6, steps=steps, texts=texts, links=[link])
