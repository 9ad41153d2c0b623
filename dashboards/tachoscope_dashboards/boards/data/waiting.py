"""Panels about waiting for input: jobs, ranks, shards, and copies to the device. Each takes the matchers of the job."""

from __future__ import annotations

from tachoscope_alerts.compile.sli_expressions import bound_matcher
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import JOBS_KEPT, KEPT, RATE, WHOLE, attained
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import Column, PanelText, PlacedPanel, Query, happened, heatmap, stat, table, timeseries
from tachoscope_dashboards.parts.slo_objectives import above, at_least, bound
from tachoscope_dashboards.parts.variables import CHOSEN_PLACE, THIS_JOB_RECORDED

WAIT = "training-input-wait"
_STEPS = "tachoscope_step_data_wait_ratio"
_TIME = "job_state:tachoscope_job_time:rate1m"
_CHOSEN = THIS_JOB_RECORDED
_COPY, _ALL = ', state="host_to_device"', ""
_NOT_MEASURED = "no steps, or their input is not measured: it comes through no loader that the probe knows"


def jobs(policy: Policy) -> PlacedPanel:
    """Return all jobs, the one that waits most first, from recorded series."""
    state = f'sum by ({identity.JOB}) ({_TIME}{{{CHOSEN_PLACE}, state="%s"}}) / sum by ({identity.JOB}) ({_TIME}{{{CHOSEN_PLACE}}})'
    here = links.board("data", "This job, here", identity.job_of_row(JOBS_KEPT, "${__data.fields.Job}"))
    return table(
        "Waiting for data, by job",
        PanelText(
            "Share of the time of its ranks that each running job waits for data, and copies them to the device; of all "
            "teams and namespaces of agents, and of all nodes.",
            "all below the objective's bound",
            "begin with the job that has the most ranks times the most waiting",
            "no job runs",
        ),
        [
            Query(state % "data_wait"),
            Query(state % "host_to_device"),
            Query(f"sum by ({identity.JOB}) (job:tachoscope_ranks:sum{{{CHOSEN_PLACE}}})"),
        ],
        [
            Column("training_job", "Job", link=here),
            *identity.COLUMNS,
            Column("A", "Waits for data", unit="percentunit", steps=above(WAIT)),
            Column("B", "Copies to the device", unit="percentunit"),
            Column("C", "Ranks", unit="short"),
        ],
        sort="Waits for data",
        links=[runbook(policy, "TrainingInputWaitBurn")],
    )


def starved(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how much a job waits, in time and in steps."""
    return [
        _share_now(policy),
        attained(policy, WAIT, "All jobs, 1 day", "see the table of jobs above", height=8),
        _states(policy),
        _kept(policy, where),
        _spread(policy, where),
    ]


def _share_now(policy: Policy) -> PlacedPanel:
    return stat(
        "Waits for data",
        PanelText(
            "Share of the time of its ranks that the job waits for data, of all namespaces of agents, and of all nodes.",
            "below the objective's bound",
            "all ranks alike: the storage, or too few workers; some: see which",
            "the job does not run",
        ),
        Query(f'sum({_TIME}{{{_CHOSEN}, state="data_wait"}}) / sum({_TIME}{{{_CHOSEN}}})'),
        unit="percentunit",
        height=8,
        steps=above(WAIT),
        links=[runbook(policy, "input_workers"), runbook(policy, "input_fetch")],
    )


def _states(policy: Policy) -> PlacedPanel:
    states = ("data_wait", "host_to_device")
    wanted = f'sum by (state) ({_TIME}{{{_CHOSEN}, state=~"{"|".join(states)}"}})'
    return timeseries(
        "Waiting for data, and copying them",
        PanelText(
            "Share of the time of its ranks in the states data_wait and host_to_device, of all namespaces of agents, and of all "
            "nodes.",
            "both near 0",
            "it rises when an epoch begins: workers are started again; it climbs within one: the cache of the host gets too small",
            "the job does not run",
        ),
        [Query(f"{wanted} / on () group_left () sum({_TIME}{{{_CHOSEN}}})", "{{state}}")],
        unit="percentunit",
        width=16,
        colors={state: palette.STATE_COLORS[state] for state in states},
        links=[
            runbook(policy, "TrainingInputWaitBurn"),
            links.explorer(policy, "job", "This job in the explorer", {"job": "${training_job}"}),
        ],
    )


def _kept(policy: Policy, where: str) -> PlacedPanel:
    least = bound(WAIT)
    good = f"sum(rate({_STEPS}_bucket{{{where}, {bound_matcher(least)}}}{RATE}))"
    return timeseries(
        "Steps that hardly wait",
        PanelText(
            f"Share of the steps of ranks that spent at most {least:.0%} of their time waiting for data: what is promised.",
            "at the dashed line, or above it",
            "see beside it by how much they miss it, and below which ranks",
            _NOT_MEASURED,
        ),
        [Query(f"{good} / (sum(rate({_STEPS}_count{{{where}}}{RATE})) > 0)", "steps")],
        unit="percentunit",
        maximum=1.0,
        steps=at_least(WAIT),
        links=[runbook(policy, "TrainingInputWaitBurn")],
    )


def _spread(policy: Policy, where: str) -> PlacedPanel:
    return heatmap(
        "Steps by their share of waiting",
        PanelText(
            "How many steps of ranks waited for which share of their time, over time.",
            "all in the lowest row",
            "a second band: each n-th step waits, such as for one slow worker of n; all higher: too few workers, or slow storage",
            _NOT_MEASURED,
        ),
        Query(happened(f"sum by (le) (rate({_STEPS}_bucket{{{where}}}{RATE}))"), "{{le}}"),
        unit="percentunit",
        width=12,
        height=8,
        is_histogram=True,
        links=[runbook(policy, "input_preprocess"), runbook(policy, "input_workers")],
    )


def ranks(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return which ranks wait, over time and now."""
    return [
        heatmap(
            "Waiting for data, by rank",
            PanelText(
                "Share of its recent steps that each rank spent waiting for data.",
                "no rank and no moment stands out, and all are near 0",
                "one row: that rank's host or shards; one after the other: who reads from the slow place; all: what they share",
                _NOT_MEASURED,
            ),
            Query(f"max by (rank) (tachoscope_data_wait_ratio{{{where}}})", "{{rank}}"),
            unit="percentunit",
            width=14,
            minimum=0.0,
            maximum=1.0,
            links=[runbook(policy, "input_straggler")],
        ),
        _ranks_now(policy, where),
    ]


def _ranks_now(policy: Policy, where: str) -> PlacedPanel:
    by = "sum by (instance, rank)"
    time = f"rate(tachoscope_time_seconds_total{{{where}%s}}[5m])"
    copies = f"{by} ({time % _COPY}) / ({by} ({time % _ALL}) > 0)"
    rank = {"job": "${training_job}", "rank": "${__data.fields.Rank}"}
    node = links.board("gpu-node", "This node", KEPT | {"node": "${__data.fields.Node}"})
    return table(
        "Ranks, now",
        PanelText(
            "What each rank waits for data, of its recent steps, and its time in copies to the device, of the last five minutes.",
            "alike, and near 0",
            "ranks of one node: that host; one rank: its shards or its worker",
            _NOT_MEASURED,
        ),
        [Query(f"max by (instance, rank) (tachoscope_data_wait_ratio{{{where}}})"), Query(copies)],
        [
            Column("rank", "Rank", link=links.explorer(policy, "job", "This rank in the explorer", rank)),
            Column("instance", "Node", link=node),
            Column("A", "Waits for data", unit="percentunit", steps=above(WAIT)),
            Column("B", "Copies to the device", unit="percentunit"),
        ],
        width=10,
        height=10,
        sort="Waits for data",
        links=[runbook(policy, "input_straggler")],
    )


def shards(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return shards that fail, and those that are left out."""
    return [_failing(policy, where), _left_out(policy, where)]


def _failing(policy: Policy, where: str) -> PlacedPanel:
    failures = f"increase(tachoscope_shard_failures_total{{{where}}}{WHOLE})"
    return table(
        "Shards that could not be read",
        PanelText(
            "Failures to read a shard in this time, and on how many nodes it failed. The first 20 shards of a node "
            "have names, the others are `other`.",
            "empty",
            "one shard on several ranks: it is damaged; many at once: the storage or its credentials",
            "every shard could be read, or nothing is known of shards: the reader names none",
        ),
        [
            Query(f"round(sum by (shard) ({failures})) > 0"),
            Query(f"count by (shard) ({failures} > 0)"),
        ],
        [
            Column("shard", "Shard"),
            Column("A", "Failures", unit="short"),
            Column("B", "Nodes", unit="short"),
        ],
        width=16,
        height=8,
        sort="Failures",
        links=[runbook(policy, "DataShardFailing"), runbook(policy, "procedure-bad-data-shard")],
    )


def _left_out(policy: Policy, where: str) -> PlacedPanel:
    return timeseries(
        "Shards left out",
        PanelText(
            "Shards on the job's quarantine list: they failed on several ranks or attempts, and loaders that ask skip them.",
            "0",
            "write the shard again, then release it: `tachoscope store quarantine`; loaders that do not ask fail at it again",
            "nothing is known of shards: the reader names none",
        ),
        [Query(f"max by ({identity.JOB}) (tachoscope_shards_quarantined{{{where}}})", identity.JOB_LEGEND)],
        unit="short",
        width=8,
        links=[runbook(policy, "DataShardFailing")],
    )


def copies(policy: Policy, where: str) -> PlacedPanel:
    """Return the time of copies to the device, by rank."""
    time = f"sum by (rank) (rate(tachoscope_time_seconds_total{{{where}%s}}{RATE}))"
    return timeseries(
        "Copies to the device, by rank",
        PanelText(
            "Share of its time that a rank copies its batch to the device, of the ten ranks with the most.",
            "near 0: copies overlap with computation",
            "pin the loader's memory and copy without blocking; one node alone: its PCIe link",
            "the job does no steps",
        ),
        [Query(f"topk(10, {time % _COPY} / ({time % _ALL} > 0))", "rank {{rank}}")],
        unit="percentunit",
        links=[runbook(policy, "h2d_copy"), runbook(policy, "GpuPcieReplays")],
    )
