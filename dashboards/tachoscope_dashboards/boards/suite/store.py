"""Panels about how records get from the spool into the store, and which do not. Each takes the matchers of the agents."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import RATE
from tachoscope_dashboards.boards.suite.agents import NO_AGENT
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, PanelText, PlacedPanel, Query, timeseries

_LATE_SECONDS = 900.0
"""What records wait for when the alert AgentSpoolBacklog looks for errors of the store."""


def store(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how records get from the spool into the store, and which do not."""
    return [
        _waiting(policy, where),
        _backlog(policy, where),
        _shipped(policy, where),
        _errors(policy, where),
        _rejected(policy, where),
        _dropped(policy, where),
        _spool(policy, where),
        _looks(policy, where),
        _unreadable(policy, where),
    ]


def _waiting(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Records that wait",
        PanelText(
            "How long the oldest record that the store lacks has waited, on the ten nodes where it is longest.",
            "a minute in a directory, five in an object store; an hour where agents are configured to collect for that long",
            "the store is slow or away; nothing is lost while the spool has room",
            NO_AGENT,
        ),
        [Query(f"topk(10, tachoscope_agent_lag_seconds{{{where}}})", "{{instance}}")],
        unit="s",
        width=8,
        steps=[ColorStep(_LATE_SECONDS, palette.WARN)],
        links=[runbook(policy, "AgentSpoolBacklog")],
    )


def _backlog(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Bytes that wait",
        PanelText(
            "Records that were read and that the store does not have yet: of all nodes, and the most of one.",
            "a few MiB a node, going up and down as segments are written",
            "it only rises: the store takes nothing; see the errors beside it",
            NO_AGENT,
        ),
        [
            Query(f"sum(tachoscope_agent_backlog_bytes{{{where}}})", "all nodes"),
            Query(f"max(tachoscope_agent_backlog_bytes{{{where}}})", "the most of a node"),
        ],
        unit="bytes",
        width=8,
        links=[runbook(policy, "AgentSpoolBacklog")],
    )


def _shipped(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Shipped to the store",
        PanelText(
            "Bytes of records a second that agents wrote into the store, before compression.",
            "as many as jobs write: some hundred bytes a step and rank",
            "nothing while jobs run: see what waits, and the errors",
            NO_AGENT,
        ),
        [Query(f"sum(rate(tachoscope_agent_shipped_bytes_total{{{where}}}{RATE}))", "records")],
        unit="Bps",
        width=8,
        links=[runbook(policy, "AgentSpoolBacklog")],
    )


def _errors(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Errors, by part",
        PanelText(
            "What agents could not do and try again: reach the store, write journal or state, read the spool, keep samples.",
            "0",
            "store: address, rights or the store itself; journal and state: the node's disk; spool: its rights",
            NO_AGENT,
        ),
        [Query(f"sum by (part) (rate(tachoscope_agent_errors_total{{{where}}}{RATE}))", "{{part}}")],
        unit="cps",
        width=8,
        links=[runbook(policy, "AgentSpoolBacklog")],
    )


def _rejected(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Records not counted, by reason",
        PanelText(
            "Lines and files of the spool that agents did not count or follow. What is not garbage is shipped all the same.",
            "0; unknown_kind for a while, where jobs have a newer probe than the agent",
            "over_limit: raise `limits`; identity: two jobs of one name; owner: another user's job has the name; malformed: "
            "another program writes there",
            NO_AGENT,
        ),
        [Query(f"sum by (reason) (rate(tachoscope_agent_rejected_total{{{where}}}{RATE}))", "{{reason}}")],
        unit="cps",
        width=8,
        links=[runbook(policy, "AgentDroppingRecords")],
    )


def _dropped(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Records dropped, by job",
        PanelText(
            "Records a second that processes of jobs could not write, of the ten jobs with the most.",
            "0",
            "the spool or its file system is full, or the agent was away for longer than 64 MiB a process last",
            "no job runs on these nodes",
        ),
        [
            Query(
                f"topk(10, sum by ({identity.JOB}) (rate(tachoscope_records_dropped_total{{{where}}}{RATE})))",
                identity.JOB_LEGEND,
            )
        ],
        unit="cps",
        width=8,
        links=[runbook(policy, "AgentDroppingRecords")],
    )


def _spool(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Space left in the spool",
        PanelText(
            "Space left on the file system of the spool, on the ten nodes with the least.",
            "level, and far above 2 GiB, or 5 % of a small file system: processes write nothing below that",
            "another program fills it (/dev/shm is shared), or records wait",
            NO_AGENT,
        ),
        [Query(f"bottomk(10, tachoscope_agent_spool_free_bytes{{{where}}})", "{{instance}}")],
        unit="bytes",
        width=8,
        links=[runbook(policy, "AgentDroppingRecords")],
    )


def _looks(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Time to read the spool",
        PanelText(
            "Duration of the last reading of the spool, on the ten slowest nodes.",
            "milliseconds; an agent looks once a second",
            "many segments, a slow disk under the journal, or a node without a core to spare",
            NO_AGENT,
        ),
        [Query(f"topk(10, tachoscope_agent_tick_duration_seconds{{{where}}})", "{{instance}}")],
        unit="s",
        width=8,
        links=[runbook(policy, "cpu_contention")],
    )


def _unreadable(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Segments, and directories that cannot be read",
        PanelText(
            "Segment files that agents follow, and directories of the spool that they cannot read.",
            "a few segments a rank; no directory",
            "directories: jobs write with rights that the agent's user lacks; segments that only rise: processes that end and stay",
            NO_AGENT,
        ),
        [
            Query(f"sum(tachoscope_agent_segments{{{where}}})", "segments"),
            Query(f"sum(tachoscope_agent_unreadable_directories{{{where}}})", "directories that cannot be read"),
        ],
        unit="short",
        width=8,
        colors={"directories that cannot be read": palette.BAD},
        links=[runbook(policy, "AgentDroppingRecords")],
    )
