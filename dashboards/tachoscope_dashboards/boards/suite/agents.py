"""Panels about what agents see, ship and answer. Each takes the matchers of the agents that it is about."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import KEPT, RATE
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, PanelText, PlacedPanel, Query, bars, table, timeseries

NO_AGENT = "no agent is scraped"
JOB = 'job=~".*tachoscope.*", job!~".*-watch"'
UP = f"up{{{JOB}, %s}}"
"""Scrapes of agents, by the name that the scrape job has by default."""
STATUS_COLORS = {"ok": palette.OK, "partial": palette.WARN, "failed": palette.BAD}


def failing(policy: Policy, where: str) -> PlacedPanel:
    """Return collectors that fail."""
    return table(
        "Collectors that fail",
        PanelText(
            "Collectors that fail, and for how long. What this machine cannot have is not a failure.",
            "empty",
            "the agent's log says why; one collector on all nodes: a new driver or kernel",
            "no collector fails, or no agent is scraped: see the number of those that are up",
        ),
        [Query(f"max by (instance, collector) (tachoscope_collector_failing_seconds{{{where}}})")],
        [
            Column("instance", "Node", link=links.board("gpu-node", "This node", KEPT | {"node": "${__data.fields.Node}"})),
            Column("collector", "Collector"),
            Column("A", "Failing for", unit="s"),
        ],
        width=8,
        height=12,
        sort="Failing for",
        links=[runbook(policy, "CollectorFailing")],
    )


def outcomes(policy: Policy, where: str) -> PlacedPanel:
    """Return how the last runs of collectors ended, over nodes."""
    status = f'sum by (collector) (tachoscope_collector_status{{{where}, status="%s"}})'
    return table(
        "What collectors can see, by nodes",
        PanelText(
            "On how many nodes a collector's last run gave data, found none now, cannot be on such a machine, or failed.",
            "what the hardware has is seen on all nodes; the rest is not supported",
            "not supported where it should be: mounts, rights or a driver; `tachoscope doctor` there says which",
            NO_AGENT,
        ),
        [Query(status % one) for one in ("ok", "no_data", "not_supported", "failed")],
        [
            Column("collector", "Collector"),
            Column("A", "Sees", unit="short"),
            Column("B", "Nothing now", unit="short"),
            Column("C", "Not supported", unit="short"),
            Column("D", "Failed", unit="short", steps=(ColorStep(1.0, palette.WARN),)),
        ],
        width=8,
        height=12,
        sort="Failed",
        links=[runbook(policy, "CollectorFailing")],
    )


def durations(policy: Policy, where: str) -> PlacedPanel:
    """Return how long collectors take where they are slowest."""
    return bars(
        "Longest run of each collector",
        PanelText(
            "How long the last run of a collector took, on the node where it took longest.",
            "milliseconds; far below a second",
            "a driver, a kubelet or a file system that answers slowly there",
            NO_AGENT,
        ),
        Query(f"max by (collector) (tachoscope_collector_duration_seconds{{{where}}})", "{{collector}}"),
        unit="s",
        height=12,
        links=[runbook(policy, "CollectorFailing")],
    )


def answers(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how agents answer Prometheus and others, and what they push."""
    return [_scrapes(policy, where), _samples(policy, where), _refused(policy, where), _pushes(policy, where)]


def _scrapes(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Time of a scrape",
        PanelText(
            "How long scrapes of agents took, of the ten slowest.",
            "tens of milliseconds, far below the scrape's timeout",
            "more series than meant, TLS on a busy node, or the network",
            NO_AGENT,
        ),
        [Query(f"topk(10, scrape_duration_seconds{{{JOB}, {where}}})", "{{instance}}")],
        unit="s",
        width=6,
        links=[runbook(policy, "AgentDown")],
    )


def _samples(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Series of an agent",
        PanelText(
            "Samples that an agent's scrape gave: the most, and the mean.",
            "up to 80 a GPU and 60 a rank, and some hundred of the host",
            "it grows without more GPUs or ranks: many jobs or shards by name; lower `limits`",
            NO_AGENT,
        ),
        [
            Query(f"max(scrape_samples_scraped{{{JOB}, {where}}})", "the most"),
            Query(f"avg(scrape_samples_scraped{{{JOB}, {where}}})", "mean"),
        ],
        unit="short",
        width=6,
        links=[runbook(policy, "AgentDown")],
    )


def _refused(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Requests refused, by reason",
        PanelText(
            "Requests and connections that agents refused, by reason: unauthorised, malformed, too_slow, too_many.",
            "0",
            "unauthorised: a token or certificate that was renewed on one side only; the rest: a scanner",
            NO_AGENT,
        ),
        [Query(f"sum by (reason) (rate(tachoscope_agent_http_refused_total{{{where}}}{RATE}))", "{{reason}}")],
        unit="reqps",
        width=6,
        links=[runbook(policy, "AgentDown")],
    )


def _pushes(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Pushes by OTLP, by outcome",
        PanelText(
            "Pushes of metrics to an OTLP receiver, by outcome.",
            "all ok",
            "failed: address, rights or the receiver; partial: it refuses some of the metrics, and says which in the agent's log",
            "agents are not configured to push (`otlp`)",
        ),
        [Query(f"sum by (outcome) (rate(tachoscope_agent_otlp_exports_total{{{where}}}{RATE}))", "{{outcome}}")],
        unit="ops",
        width=6,
        colors=STATUS_COLORS,
        links=[runbook(policy, "CollectorFailing")],
    )
