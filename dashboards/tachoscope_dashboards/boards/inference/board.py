"""Inference: do users get answers, soon enough, and what limits us?"""

from __future__ import annotations

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.inference import limits
from tachoscope_dashboards.boards.inference.expressions import (
    BETWEEN,
    FIRST,
    HERE,
    RATE,
    SERVERS,
    attained,
    common_buckets,
    good_share,
    quantile,
)
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import KEPT
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, Link, PanelText, PlacedPanel, Query, heatmap, row, stat, timeseries
from tachoscope_dashboards.parts.slo_objectives import above, at_least, bound, objective
from tachoscope_dashboards.parts.variables import CLUSTER, MODEL, NAMESPACE, SERVICE, SERVICE_NAMESPACE

OUTCOME_COLORS = {
    "ok": palette.OK,
    "client_error": palette.UNKNOWN,
    "server_error": palette.BAD,
    "shed": palette.WARN,
    "timeout": palette.SERIES[6],
    "cut": palette.SERIES[3],
}
"""Of how requests end: grey is what nobody here is to blame for."""
_ATTAINED = (
    ("inference-availability", "Answered", "the colours of the requests below say how they fail"),
    ("inference-ttft-p99", "First token in {:g} s", "see below what requests spend their time on: queue or prefill"),
    ("inference-ttft-p95", "First token in {:g} s", "as its neighbour; prompts that grew show here first"),
    ("inference-inter-token", "Next token in {:g} s", "see the KV cache, preemptions and how many requests run at once"),
    ("inference-admission", "Begun in {:g} s", "see the requests that wait: too few replicas, or a full KV cache"),
    ("inference-joint-attainment", "All of it together", "the numbers to its left say which part fails"),
)
_QUANTILES = {0.5: palette.SERIES[4], 0.95: palette.SERIES[0], 0.99: palette.SERIES[6]}
"""Not in the colours of the objectives' lines, which they cross."""
_UNSEEN = "no request got a first token, or the models do not answer in tokens"


def board(policy: Policy) -> Board:
    """Return the board on inference services: traffic, latencies, queue and cache."""
    return Board(
        uid=board_uid("inference"),
        title="Inference",
        question="Do users get answers, soon enough, and what limits us?",
        hint="First the objectives, over the chosen time; then how requests end, where they wait, and what the engines do. "
        "Choose a service: quantiles over servers of different makes are rough, as their buckets differ.",
        variables=(CLUSTER, NAMESPACE, SERVICE_NAMESPACE, SERVICE, MODEL),
        panels=(
            *(_attained(policy, *one) for one in _ATTAINED),
            row("Do users get answers?"),
            *_answers(policy),
            row("Soon enough?"),
            *_first_token(policy),
            *_waiting(policy),
            row("What limits us?"),
            *limits.requests(policy),
            *limits.engines(policy),
            *limits.caches(policy),
            row("Throughput against latency"),
            limits.throughput(policy),
            limits.tokens(policy),
            _between(policy),
            row("Servers"),
            *limits.servers(policy),
        ),
        events=(server_starts(SERVERS),),
        alerts='area="inference", service=~"$service"',
        since="now-1h",
    )


def server_starts(matchers: str) -> BoardAnnotation:
    """Return the marks where a service has a newer process than a minute before: a deployment, or a restart.

    The newest of half an hour is what it is compared with: a server that loads its model tells nothing for a while.
    """
    started = f"tachoscope_server_start_time_seconds{{{matchers}}}"
    expr = f"max by ({identity.SERVICE}) ({started}) > max by ({identity.SERVICE}) (max_over_time({started}[30m] offset 1m))"
    return BoardAnnotation("Server starts", expr, f"{identity.SERVICE_LEGEND}: a server started", palette.SERIES[0])


def _about(policy: Policy, name: str) -> list[Link]:
    return [runbook(policy, objective(name).alert), links.board("slos", "Its budget", KEPT | {"slo": name})]


def _attained(policy: Policy, name: str, title: str, otherwise: str) -> PlacedPanel:
    slo = objective(name)
    return stat(
        title.format(bound(name)) if "{" in title else title,
        PanelText(
            f"{slo.description} Over the chosen time, of all namespaces of agents; the objective `{name}`.",
            f"{slo.target * 100:g} % or more",
            otherwise,
            "no such requests, or no rules are loaded",
        ),
        Query(attained(name), instant=True),
        unit="percentunit",
        steps=at_least(name),
        links=_about(policy, name),
    )


def _answers(policy: Policy) -> list[PlacedPanel]:
    requests = timeseries(
        "Requests by outcome",
        PanelText(
            "Requests that ended, a second, by how. client_error is the request's own fault, or its client left.",
            "green, with a little grey",
            "server_error: read the server's log; shed: it is full; timeout: it is too slow; cut: a process died",
            "no request ended",
        ),
        [Query(f"sum by (outcome) (rate(tachoscope_requests_total{{{HERE}}}{RATE}))", "{{outcome}}")],
        unit="reqps",
        width=8,
        stacked=True,
        colors=OUTCOME_COLORS,
        links=_about(policy, "inference-availability"),
    )
    return [
        requests,
        _share_over_time(
            policy,
            "inference-availability",
            "Availability",
            "one model fell: what changed there, see the marks; all fell: what they share, such as a gateway",
            "no request ended",
        ),
        _share_over_time(
            policy,
            "inference-joint-attainment",
            "Requests that met all objectives",
            "above it stands whether they failed or were slow; below it, why",
            "no server under the serving probe, or its models do not answer in tokens",
        ),
    ]


def _share_over_time(policy: Policy, name: str, title: str, otherwise: str, empty: str) -> PlacedPanel:
    slo = objective(name)
    return timeseries(
        title,
        PanelText(
            f"{slo.description} The ten worst models; the line is the target.",
            f"at {slo.target * 100:g} % or above; a short dip is what the budget is for",
            otherwise,
            empty,
        ),
        [Query(f"bottomk(10, {good_share(name)})", identity.MODEL_LEGEND)],
        unit="percentunit",
        width=8,
        minimum=None,
        maximum=1.0,
        steps=at_least(name),
        links=_about(policy, name),
    )


def _quantiles(title: str, about: PanelText, metric: str, steps: tuple[ColorStep, ...], shown: list[Link]) -> PlacedPanel:
    queries = [Query(quantile(part, metric), f"p{100 * part:g}") for part in _QUANTILES]
    colors = {f"p{100 * part:g}": color for part, color in _QUANTILES.items()}
    return timeseries(title, about, queries, unit="s", colors=colors, steps=steps, links=shown, log=True, minimum=None)


def _first_token(policy: Policy) -> list[PlacedPanel]:
    most, nearly_all = "inference-ttft-p95", "inference-ttft-p99"
    shown = [runbook(policy, objective(name).alert) for name in (nearly_all, most)]
    return [
        heatmap(
            "Time to the first token",
            PanelText(
                "Requests a second by how long they waited for their first token. Servers of different makes have other "
                "buckets: the rows are those that all chosen ones have. Choose one service to see all of its own.",
                "one band that stays where it is",
                "a band that climbs: requests queue; a second band: some prompts are long, or some replicas slow",
                _UNSEEN,
            ),
            Query(common_buckets(FIRST), "{{le}}"),
            unit="s",
            width=12,
            height=8,
            is_histogram=True,
            links=shown,
        ),
        _quantiles(
            "Time to the first token, quantiles",
            PanelText(
                "Within this 50, 95 and 99 % of requests have their first token. The lines are the two objectives.",
                f"p95 below {bound(most):g} s and p99 below {bound(nearly_all):g} s",
                "the queue grew too: more replicas; it did not: longer prompts, or a prefix cache that no longer hits",
                _UNSEEN,
            ),
            FIRST,
            (ColorStep(bound(most), palette.WARN), ColorStep(bound(nearly_all), palette.BAD)),
            shown,
        ),
    ]


def _waiting(policy: Policy) -> list[PlacedPanel]:
    return [
        _quantiles(
            "Time in the queue",
            PanelText(
                "Within this 50, 95 and 99 % of requests are worked on. The line is the objective.",
                f"p99 below {bound('inference-admission'):g} s",
                "add a replica; if the KV cache is full, requests wait although there is computing power left",
                "no request was worked on, or the servers do not tell",
            ),
            "tachoscope_request_queue_seconds",
            above("inference-admission"),
            _about(policy, "inference-admission"),
        ),
        _quantiles(
            "Whole answers",
            PanelText(
                "Within this 50, 95 and 99 % of the requests that ended ok were answered to the end. There is no objective on it.",
                "as at this hour a day ago",
                "first token and speed say which part grew; if neither did, the answers are longer",
                "no request ended ok",
            ),
            "tachoscope_request_seconds",
            (),
            _about(policy, "inference-joint-attainment"),
        ),
    ]


def _between(policy: Policy) -> PlacedPanel:
    return _quantiles(
        "Time from token to token",
        PanelText(
            "Within this 50, 95 and 99 % of tokens follow the one before. The line is the objective.",
            f"p99 below {bound('inference-inter-token'):g} s",
            "it grows with the tokens a second beside it: the batches are as large as they may be; alone: preemptions, "
            "long prompts in between, or a slow GPU",
            "no tokens, or the models do not answer in them",
        ),
        BETWEEN,
        above("inference-inter-token"),
        _about(policy, "inference-inter-token"),
    )
