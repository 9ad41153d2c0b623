"""Alertmanager's configuration: whom an alert reaches, with which others together, and what keeps it quiet.

Knows nothing of single alerts but their labels: `severity` (page, ticket), `owner`, and for those of an objective `slo` and `area`,
beside those that tell workloads apart. Valid for Alertmanager 0.25.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, Timing, duration
from tachoscope_alerts.spec.policy import Policy, Receiver, Team
from tachoscope_alerts.spec.slo import Severity, Slo
from tachoscope_core.metrics.metric import IDENTITY, WORKLOADS

WATCHDOG = "Watchdog"
"""The alert that always fires: its silence says that no other would arrive."""
DEAD_MANS_SWITCH = "dead-mans-switch"
SERVICE_DOWN = "InferenceDown"
"""Says that a whole service is down, and with that why the budgets of its objectives burn."""

_INCIDENT = [*IDENTITY, *WORKLOADS]
"""What an incident is of. A group has one key at PagerDuty and others, so that what is of another job or service must be another
group: it would only update an incident that somebody works on. Nodes and models are not among them: a hang is told by each node."""
_GROUP_BY: Mapping[Severity, list[str]] = {
    "page": ["slo", "area", "owner", *_INCIDENT],
    "ticket": ["alertname", "owner", *_INCIDENT],
}
"""One outage is one page, however many tiers and models it burns; tickets are for one fault each."""
_WAITS: Mapping[Severity, tuple[float, float, float]] = {
    "page": (30.0, 300.0, HOUR),
    "ticket": (120.0, HOUR / 2, DAY),
}
"""Seconds: before a group is first told of, so that what comes with it is in it; before it is told what joined or left it, which is
also how often a receiver that was down is tried again; before it is told again. The first two of a page are Alertmanager's
defaults.
"""
_HEARTBEAT_SECONDS = 60.0
_KEPT = (*IDENTITY, "service", "model")
"""Labels by which alerts differ even where no objective is kept by them."""


def _first(annotation: str) -> str:
    """Return the template of an annotation of the first alert that fires, or if none does any more, of the first that ended.

    Alertmanager lists what fires and what has ended together, in no order that a reader could use.
    """
    return f"{{{{ with index (or .Alerts.Firing .Alerts) 0 }}}}{{{{ .Annotations.{annotation} }}}}{{{{ end }}}}"


_TITLE = _first("summary")
_LINES = (
    "{{ range .Alerts }}{{ .Status }}: {{ .Annotations.summary }}\n{{ .Annotations.description }}\n"
    "Runbook: {{ .Annotations.runbook_url }}\nDashboard: {{ .Annotations.dashboard_url }}\n{{ end }}"
)


def configuration(policy: Policy, slos: Iterable[Slo] = (), *, webhook: str = "", timing: Timing | None = None) -> dict[str, Any]:
    """Return the configuration as Alertmanager's YAML has it.

    Args:
        slos: objectives whose labels tell one budget from another, beside service and model.
        webhook: if given, everything goes to this URL instead, under the receivers' names: for tests and fire drills.
        timing: waits are scaled by it; by default they last as long as they should.
    """
    timing = timing or Timing()
    receivers = [_receiver(DEAD_MANS_SWITCH, policy.dead_mans_switch, webhook, resolved=False)]
    receivers += [
        _receiver(_name(owner.name, severity), owner.receivers(severity), webhook, severity=severity)
        for owner in policy.owners.values()
        for severity in get_args(Severity)
    ]
    heartbeat = timing.waited(_HEARTBEAT_SECONDS)
    watchdog = {
        "matchers": [f'alertname="{WATCHDOG}"'],
        "receiver": DEAD_MANS_SWITCH,
        "group_by": ["alertname"],
        "group_wait": "0s",
        "group_interval": duration(heartbeat),
        "repeat_interval": duration(0.9 * heartbeat),  # a moment less, so that it is due each time that the group is looked at
    }
    return {
        "route": {
            "receiver": _name(policy.fallback, "ticket"),
            **_grouping("ticket", timing),
            "routes": [watchdog, *(_route(policy, severity, timing) for severity in get_args(Severity))],
        },
        "inhibit_rules": _inhibit_rules(_KEPT + tuple(sorted({label for slo in slos for label in slo.by} - set(_KEPT)))),
        "receivers": receivers,
        "time_intervals": [
            {"name": window.name, "time_intervals": [dict(interval) for interval in window.intervals]}
            for window in policy.maintenance
        ],
    }


def waits(severity: Severity, timing: Timing) -> tuple[float, float, float]:
    """Return the seconds before a group is first told of, before it is told of a change, and before it is told again."""
    first, change, again = (timing.waited(seconds) for seconds in _WAITS[severity])
    return first, change, again


def _route(policy: Policy, severity: Severity, timing: Timing) -> dict[str, Any]:
    """Return the route of a severity, with one below it for each owner, and the fallback for the rest."""
    return {
        "matchers": [f'severity="{severity}"'],
        "receiver": _name(policy.fallback, severity),
        **_grouping(severity, timing),
        "routes": [_route_of_owner(policy, owner, severity) for owner in policy.owners.values()],
    }


def _route_of_owner(policy: Policy, owner: Team, severity: Severity) -> dict[str, Any]:
    route: dict[str, Any] = {"matchers": [f'owner="{owner.name}"'], "receiver": _name(owner.name, severity)}
    muted = [window.name for window in policy.maintenance if owner.name in window.owners and severity in window.severities]
    return {**route, "mute_time_intervals": muted} if muted else route


def _grouping(severity: Severity, timing: Timing) -> dict[str, Any]:
    names = ("group_wait", "group_interval", "repeat_interval")
    return {"group_by": _GROUP_BY[severity]} | {
        name: duration(seconds) for name, seconds in zip(names, waits(severity, timing), strict=True)
    }


def _inhibit_rules(kept: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return what keeps an alert quiet; `kept`: the labels by which any objective has a budget of its own.

    A rule of Alertmanager holds two alerts that both lack a label to be equal in it. So labels that have to be equal are required
    in both; of those that may be lacking, such as the service of a training, only equal ones, or none in both, count.
    """
    objective = ['slo=~".+"', 'area=~".+"']
    return [
        {  # The page about an objective is what somebody works on already.
            "source_matchers": ['severity="page"', *objective],
            "target_matchers": ['severity="ticket"', *objective],
            "equal": ["slo", "area", *kept],
        },
        {  # Of a service that is down each of its budgets burns.
            "source_matchers": [f'alertname="{SERVICE_DOWN}"', 'severity="page"', 'area=~".+"', 'service=~".+"'],
            "target_matchers": [f'alertname!="{SERVICE_DOWN}"', 'long=~".+"', 'service=~".+"', *objective],
            "equal": ["area", "service", *IDENTITY],
        },
    ]


def _receiver(
    name: str, ways: tuple[Receiver, ...], webhook: str, *, severity: Severity = "ticket", resolved: bool = True
) -> dict[str, Any]:
    if webhook:
        ways = (Receiver("webhook", {"url": webhook}),)
    found: dict[str, Any] = {"name": name}
    for way in ways:
        found[f"{way.integration}_configs"] = [
            {"send_resolved": resolved, **_message(way.integration, severity), **way.settings}  # settings win
        ]
    return found


def _message(integration: str, severity: Severity) -> dict[str, Any]:
    """Return the text of an alert: summary, runbook and dashboard; a webhook gets all annotations."""
    if integration == "pagerduty":
        links = [{"href": _first(f"{name}_url"), "text": name} for name in ("runbook", "dashboard")]
        return {
            "description": _TITLE,
            "severity": "critical" if severity == "page" else "warning",
            "details": {"alerts": _LINES},
            "links": links,
        }
    if integration == "slack":
        return {"title": _TITLE, "title_link": _first("runbook_url"), "text": _LINES}
    if integration == "email":
        return {"headers": {"Subject": f"{severity}: {_TITLE}"}, "text": _LINES, "html": ""}
    return {}


def _name(owner: str, severity: Severity) -> str:
    return f"{owner}-{severity}"
