"""The ranks of a training job beside each other: which one do the others wait for, and with what are they busy?"""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_dashboards.boards.shared.expressions import KEPT, ONE_JOB_KEPT
from tachoscope_dashboards.boards.training.expressions import JOB, RANKS, rank_time
from tachoscope_dashboards.parts import links, slo_objectives
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import Column, Link, PanelText, PlacedPanel, Query, heatmap, table, timeseries

_OWN = "compute|data_wait|host_to_device|host_wait"
"""What a rank does in a step itself: all but what it waits for others, or does beside steps."""
_REGULARITY, _INPUT = "training-step-regularity", "training-input-wait"
_NO_RANKS = "no rank of this job does steps"
_MOST = 10
"""Lines that people tell apart."""


def _against_the_middle(window: str) -> str:
    """Return each rank's own time over that of the job's middle rank."""
    middle = f"quantile(0.5, {rank_time(_OWN, JOB, window)})"
    return f"{rank_time(_OWN, window=window)} / on () group_left () ({middle} > 0)"


def heat(policy: Policy) -> PlacedPanel:
    """Return the heat map of time and ranks: the slow one stands out."""
    bound = slo_objectives.bound(_REGULARITY)
    return heatmap(
        "Own time of each rank over that of the middle rank",
        PanelText(
            "How much longer than the middle one each rank works on a step itself: compute, input, copies and the host, without "
            "waiting for the others. In a job that keeps step all take equally long, and the slow rank is the one that waits "
            "least: its own time is high. Of accelerators on several nodes, waiting within the exchange looks like computing: then "
            "all are alike here.",
            f"one even colour. The scale ends at {bound:g} times the middle rank, where a step counts as irregular",
            "one row stands out: that rank is slow, its node is in the table below. Rows of a whole node: its host, or its heat. "
            "Rows at regular distances: a stage of the pipeline with more to do. All alike and the job slow: take a trace",
            _NO_RANKS,
        ),
        Query(_against_the_middle("$__rate_interval"), "{{rank}}"),
        unit="none",
        minimum=1.0,
        maximum=bound,
        links=[runbook(policy, "compute_straggler"), runbook(policy, "input_straggler"), _trace(policy)],
    )


def table_of_ranks(policy: Policy) -> PlacedPanel:
    """Return the ranks, the slowest first."""
    all_time = f"({rank_time('', window='5m')} > 0)"
    chosen = KEPT | {"node": "${__data.fields.Node}"}
    of_rank = {"job": "${training_job}", "rank": "${__data.fields.Rank}"}
    return table(
        "Ranks, the slowest first",
        PanelText(
            "Each rank of the last five minutes: its own time over the middle rank's, and of its time what it waits for data, for "
            "the host, and in exchanges together with waiting for stragglers, and how long ago it wrote anything.",
            "the first rows do not differ from the last",
            "a rank's number opens its timeline in the explorer, the node its hardware",
            _NO_RANKS,
        ),
        [
            Query(_against_the_middle("5m")),
            Query(f"{rank_time('data_wait', window='5m')} / {all_time}"),
            Query(f"{rank_time('host_wait', window='5m')} / {all_time}"),
            Query(f"{rank_time('communication|straggler_wait', window='5m')} / {all_time}"),
            Query(f"max by (rank, instance) (tachoscope_heartbeat_age_seconds{{{RANKS}}})"),
        ],
        [
            Column("rank", "Rank", link=explorer(policy, "trace", "Its timeline", of_rank)),
            Column("instance", "Node", link=links.board("gpu-node", "Its hardware", chosen)),
            Column("A", "Own time", unit="none", steps=slo_objectives.above(_REGULARITY)),
            Column("B", "Data wait", unit="percentunit", steps=slo_objectives.above(_INPUT)),
            Column("C", "Host wait", unit="percentunit"),
            Column("D", "Exchanges and stragglers", unit="percentunit"),
            Column("E", "Last record", unit="s"),
        ],
        sort="Own time",
        links=[runbook(policy, "compute_straggler")],
    )


def shares(policy: Policy) -> list[PlacedPanel]:
    """Return what ranks wait for: data, the host, each other."""
    return [_data(policy), _host(policy), _communication(policy)]


def _trace(policy: Policy) -> Link:
    return explorer(policy, "trace", "Timeline, in the explorer", {"job": "${training_job}"})


def _most(expression: str, over_all: str) -> list[Query]:
    """Return the lines of the ranks that have most over the whole time range: chosen at each moment again they would be all."""
    return [Query(f"{expression} and on (rank) topk({_MOST}, {over_all})", "rank {{rank}}")]


def _most_time(state: str) -> list[Query]:
    over_all = f'sum by (rank) (increase(tachoscope_time_seconds_total{{{RANKS}, state="{state}"}}[$__range] @ end()))'
    return _most(rank_time(state), over_all)


def _data(policy: Policy) -> PlacedPanel:
    bound, ratio = slo_objectives.bound(_INPUT), "tachoscope_data_wait_ratio"
    return timeseries(
        "Waiting for data",
        PanelText(
            f"Share of its recent steps that a rank waits for its next batch: the {_MOST} that wait longest.",
            f"below {bound:.0%}, as the objective asks",
            "all ranks alike: more workers, a faster store or less preprocessing. One rank: its shard or its host",
            "the input does not come through a loader, so it is not measured, or no step was done",
        ),
        _most(f"max by (rank) ({ratio}{{{RANKS}}})", f"max by (rank) (avg_over_time({ratio}{{{RANKS}}}[$__range] @ end()))"),
        unit="percentunit",
        width=8,
        steps=slo_objectives.above(_INPUT),
        links=[
            runbook(policy, slo_objectives.objective(_INPUT).alert),
            runbook(policy, "input_workers"),
            links.board("data", "Data pipeline", ONE_JOB_KEPT),
        ],
    )


def _host(policy: Policy) -> PlacedPanel:
    return timeseries(
        "Waiting for the host",
        PanelText(
            "Share of the time in which a rank's accelerator has nothing to do while its host launches, synchronises, collects "
            f"garbage or waits for a core: the {_MOST} with most.",
            "a few percent",
            "a floor of all ranks: kernels too small, or synchronisation in the loop. Peaks: garbage collection, other processes",
            _NO_RANKS,
        ),
        _most_time("host_wait"),
        unit="percentunit",
        width=8,
        links=[runbook(policy, "launch_bound"), runbook(policy, "host_pause"), runbook(policy, "cpu_contention")],
    )


def _communication(policy: Policy) -> PlacedPanel:
    return timeseries(
        "Communication that nothing hides",
        PanelText(
            f"Share of the time in which a rank is blocked in collectives: the {_MOST} with most. With ranks on several nodes, "
            "waiting for a late one is in it.",
            "the same of all ranks, and small",
            "high and even: the network, or too little to compute between exchanges. Uneven: the rank with least of it is late, "
            "see the heat map",
            _NO_RANKS,
        ),
        _most_time("communication"),
        unit="percentunit",
        width=8,
        links=[runbook(policy, "comm_exposed"), runbook(policy, "slow_link"), _trace(policy)],
    )
