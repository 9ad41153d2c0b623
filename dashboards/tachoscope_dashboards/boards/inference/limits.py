"""The second half of the inference board: what limits us, throughput against latency, and the servers."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.serving import ENGINE_STATES, REQUEST_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.inference.expressions import (
    BETWEEN,
    FIRST,
    HERE,
    RATE,
    RECENT,
    SERVERS,
    bad_share,
    by_model,
    by_state,
    quantile,
)
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import KEPT
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, PanelText, PlacedPanel, Query, table, timeline, timeseries
from tachoscope_dashboards.parts.slo_objectives import above, objective

_ROW = {"service": "${__data.fields.Service}", "model": "${__data.fields.Model}"}
DIRECTION_COLORS = {"in": palette.SERIES[0], "out": palette.SERIES[2]}


def requests(policy: Policy) -> list[PlacedPanel]:
    """Return what requests spend their time on, and how many there are."""
    return [
        timeseries(
            "Where the time of requests goes",
            PanelText(
                "The ledger of requests: each second of each request that ended is in one state.",
                "decode and prefill; queued below a tenth",
                "queued: too few replicas; preempted: the KV cache is too small; cold_start: restarts; "
                "unexplained: the server does not tell",
                "no request ended",
            ),
            [Query(by_state("tachoscope_request_time_seconds_total"), "{{state}}")],
            unit="percentunit",
            stacked=True,
            maximum=1.0,
            colors={state: palette.STATE_COLORS[state] for state in REQUEST_STATES},
            links=[runbook(policy, "InferenceAdmissionBurn"), runbook(policy, "queue_saturation")],
        ),
        timeseries(
            "Requests that run and wait",
            PanelText(
                "Requests that engines work on, and those that wait for one.",
                "nothing waits for longer than a burst",
                "waiting grows while running is level: the engines are full, add a replica; or the KV cache is",
                "no engine tells",
            ),
            [
                Query(f"sum(tachoscope_requests_running{{{HERE}}})", "running"),
                Query(f"sum(tachoscope_requests_waiting{{{HERE}}})", "waiting"),
            ],
            unit="short",
            colors={"running": palette.OK, "waiting": palette.WARN},
            links=[runbook(policy, "InferenceQueueGrowing")],
        ),
    ]


def engines(policy: Policy) -> list[PlacedPanel]:
    """Return what engines do, and what memory they have for it."""
    return [
        timeseries(
            "Where the time of engines goes",
            PanelText(
                "The ledger of engines: busy, idle (nothing to do), starved (requests wait and none runs), cold_start (away).",
                "busy, with idle left for bursts",
                "starved: what feeds the engine is slow, or its cache is full; mostly idle: more at once, or fewer replicas",
                "no server under the serving probe; others do not tell",
            ),
            [Query(by_state("tachoscope_engine_time_seconds_total"), "{{state}}")],
            unit="percentunit",
            stacked=True,
            maximum=1.0,
            colors={state: palette.STATE_COLORS[state] for state in ENGINE_STATES},
            links=[runbook(policy, "underfilled"), runbook(policy, "cold_start")],
        ),
        timeseries(
            "KV cache in use",
            PanelText(
                "Share of the KV cache that is in use, of the ten fullest models; of replicas the fullest.",
                "anything, while nothing waits: a full cache also holds prefixes that are given up for free",
                "full while requests wait or are preempted: fewer at once, shorter contexts, or more memory for it",
                "no engine tells",
            ),
            [Query(f"topk(10, max by ({identity.MODEL}) (tachoscope_kv_cache_usage_ratio{{{HERE}}}))", identity.MODEL_LEGEND)],
            unit="percentunit",
            maximum=1.0,
            links=[runbook(policy, "InferenceKvCacheFull")],
        ),
    ]


def caches(policy: Policy) -> list[PlacedPanel]:
    """Return what is computed more than once, and how full the batches are."""
    received = by_model(f'rate(tachoscope_request_tokens_total{{{HERE}, direction="in"}}{RATE})')
    computed = by_model(f"rate(tachoscope_engine_prompt_tokens_total{{{HERE}}}{RATE})")
    passes = by_model(f"rate(tachoscope_engine_iterations_total{{{HERE}}}{RATE})")
    preempted = by_model(f"rate(tachoscope_request_preemptions_total{{{HERE}}}{RATE})")
    sent = by_model(f'rate(tachoscope_request_tokens_total{{{HERE}, direction="out"}}{RATE})')
    return [
        timeseries(
            "Preemptions",
            PanelText(
                "Requests a second that were put back in the queue to make room in the KV cache; the ten worst models.",
                "none",
                "admit fewer at once, or give the cache more memory",
                "no engine tells",
            ),
            [Query(f"topk(10, {preempted})", identity.MODEL_LEGEND)],
            unit="reqps",
            width=8,
            links=[runbook(policy, "InferenceKvCacheFull"), runbook(policy, "kv_pressure")],
        ),
        timeseries(
            "Prompt tokens computed, for each that came",
            PanelText(
                "Prompt tokens that engines compute, over those of the requests that end. Below 1 the prefix cache gives the rest; "
                "above 1 prompts are computed again after preemptions, or of requests that have not ended yet. Ten models.",
                "as yesterday, and below 1",
                "it rose with the first token: the prefix cache no longer hits, as after a release or a restart; it rose with "
                "preemptions: see there",
                "no request, or no server under the serving probe",
            ),
            [Query(f"topk(10, {computed} / ({received} > 0))", identity.MODEL_LEGEND)],
            unit="none",
            width=8,
            links=[runbook(policy, "prefill_interference")],
        ),
        timeseries(
            "Tokens of a pass",
            PanelText(
                "Output tokens of a forward pass: how many requests share one, and its reading of the weights. Ten models.",
                "as high as the time from token to token allows",
                "low while requests wait: the engine may not run more at once; low and none waits: replicas to spare",
                "no engine reports its passes",
            ),
            [Query(f"topk(10, {sent} / ({passes} > 0))", identity.MODEL_LEGEND)],
            unit="short",
            width=8,
            links=[runbook(policy, "decode_bandwidth")],
        ),
    ]


def throughput(policy: Policy) -> PlacedPanel:
    """Return throughput beside latency, a row for each model."""
    late, slow, failed = (objective(f"inference-{name}") for name in ("ttft-p95", "inter-token", "availability"))
    between = [by_model(f"rate({BETWEEN}_{part}{{{HERE}}}{RECENT})") for part in ("sum", "count")]
    queries = (
        Query(by_model(f"rate(tachoscope_requests_total{{{HERE}}}{RECENT})")),
        Query(by_model(f'rate(tachoscope_request_tokens_total{{{HERE}, direction="out"}}{RECENT})')),
        Query(quantile(0.95, FIRST, f"{identity.MODEL}, le", RECENT)),
        Query(f"{between[0]} / ({between[1]} > 0)"),
        Query(bad_share(failed.name, RECENT)),
        Query(by_model(f"tachoscope_requests_waiting{{{HERE}}}")),
        Query(f"max by ({identity.MODEL}) (tachoscope_kv_cache_usage_ratio{{{HERE}}})"),
    )
    columns = (
        Column(
            "service",
            "Service",
            link=links.board("inference", "This service alone", identity.service_of_row(KEPT)),
        ),
        Column("model", "Model", link=explorer(policy, "inference", "Its requests, in the explorer", _ROW)),
        *identity.COLUMNS,
        Column("A", "Requests", "reqps"),
        Column("B", "Output tokens a second", "short"),
        Column("C", "First token, p95", "s", above(late.name)),
        Column("D", "Token to token, mean", "s", above(slow.name)),
        Column("E", "Failed", "percentunit", (ColorStep(round(failed.budget, 9), palette.WARN),)),
        Column("F", "Waiting", "short"),
        Column("G", "KV cache", "percentunit"),
    )
    return table(
        "By model",
        PanelText(
            "What each model gives and how fast, of the last five minutes. Amber: beyond an objective's bound, or its budget.",
            "no amber; among replicas of one model, more tokens a second go with more time from token to token",
            "slow at few tokens a second: something is wrong there; slow at many: it is at its limit",
            "no service reports requests",
        ),
        queries,
        columns,
        sort="Requests",
        links=[runbook(policy, late.alert), runbook(policy, slow.alert), runbook(policy, failed.alert)],
    )


def tokens(policy: Policy) -> PlacedPanel:
    """Return the tokens that come and go."""
    return timeseries(
        "Tokens a second",
        PanelText(
            "Tokens of requests that ended: in their prompts, and in the answers.",
            "grows and falls with the requests",
            "level while the time beside it grows: that is the most that the engines give",
            "no request ended, or the models do not answer in tokens",
        ),
        [Query(f"sum by (direction) (rate(tachoscope_request_tokens_total{{{HERE}}}{RATE}))", "{{direction}}")],
        unit="short",
        colors=DIRECTION_COLORS,
        links=[runbook(policy, "queue_saturation")],
    )


def servers(policy: Policy) -> list[PlacedPanel]:
    """Return which servers answer, and since when they run."""
    up, started = f"tachoscope_server_up{{{SERVERS}}}", f"tachoscope_server_start_time_seconds{{{SERVERS}}}"
    by = f"by ({identity.SERVICE})"
    state = f"(sum {by} ({up}) == bool count {by} ({up})) + max {by} ({up})"
    seen = [runbook(policy, "InferenceDown"), runbook(policy, "InferenceObjectivesNotMeasured")]
    return [
        timeline(
            "Services",
            PanelText(
                "Whether the servers of a service answer the agents that read their metrics.",
                "all of them",
                "some: the others take their requests, and queue; none: the service is down",
                "no server under the probe, and none that an agent reads",
            ),
            [Query(state, identity.SERVICE_LEGEND)],
            {"2": ("all up", palette.OK), "1": ("some up", palette.WARN), "0": ("none up", palette.BAD)},
            width=12,
            links=seen,
        ),
        table(
            "Servers",
            PanelText(
                "The servers by the node of the agent that reads their metrics.",
                "up, and started when you deployed",
                "started lately, and you did not: see the log of the one before",
                "no server under the probe, and none that an agent reads",
            ),
            [
                Query(f"max by ({identity.SERVICE}, instance) ({up})"),
                Query(f"1000 * max by ({identity.SERVICE}, instance) ({started})"),
            ],
            [
                Column("service", "Service"),
                *identity.COLUMNS,
                Column("instance", "Node", link=links.board("gpu-node", "Node", KEPT | {"node": "${__value.raw}"})),
                Column("A", "Answers", texts={"1": "yes", "0": "no"}),
                Column("B", "Started", "dateTimeFromNow"),
            ],
            width=12,
            height=8,
            sort="Answers",
            descending=False,
            links=seen,
        ),
    ]
