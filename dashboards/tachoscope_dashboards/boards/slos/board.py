"""SLOs: are we within our objectives, which budget is being spent, and by whom?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tachoscope_alerts.compile.links import board_name, board_uid, runbook_url
from tachoscope_alerts.compile.sli_expressions import OBJECTIVE, TOTAL
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.inference.board import server_starts
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.alerts import firing
from tachoscope_dashboards.boards.shared.expressions import CLUSTER_KEPT, KEPT
from tachoscope_dashboards.boards.slos import spenders
from tachoscope_dashboards.boards.slos.expressions import (
    WINDOWS,
    budget_steps,
    burn_rate,
    burn_steps,
    error_ratio,
    remaining,
)
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import (
    ColorStep,
    Column,
    Link,
    PanelText,
    PlacedPanel,
    Query,
    row,
    stat,
    table,
    text,
    timeseries,
)
from tachoscope_dashboards.parts.slo_objectives import every
from tachoscope_dashboards.parts.variables import CLUSTER, NAMESPACE, SLO, WHERE

ONE_SLO = replace(SLO, one=True)
"""Of which the panels of one objective are: the windows of several in one panel are told apart by nobody."""
_NO_RULES = "no rules are loaded"
_NOTHING = "nothing happened that counts, or no rules are loaded"


def board(policy: Policy) -> Board:
    """Return the board on objectives and who spends their error budgets."""
    slos = every()
    return Board(
        uid=board_uid("slos"),
        title="SLOs",
        question="Are we within our objectives, which budget is being spent, and by whom?",
        hint="From the top: all objectives, then the one that is chosen, then who spends it. Objectives, budgets and "
        "alerts are of all clusters and namespaces; panels of training jobs follow the chosen cluster.",
        variables=(CLUSTER, NAMESPACE, ONE_SLO),
        panels=(
            *_budgets_now(policy, slos),
            *_alerts_now(policy),
            row("Which budget is being spent?"),
            _objectives(policy, slos),
            *_over_time(policy, slos),
            row("One objective: $slo"),
            *spenders.chosen_objective(policy),
            row("By whom?"),
            spenders.by_model(policy, slos),
            spenders.lost_time(policy),
            spenders.by_job(policy),
            row("Who was notified, and what was promised"),
            _firing(policy),
            _promises(policy, slos),
        ),
        events=(server_starts(WHERE),),
        alerts='slo!=""',
        since="now-24h",
    )


def _links(policy: Policy) -> list[Link]:
    return [explorer(policy, "slos", "Objectives, in the explorer", {"slo": "${slo}"})]


def _budgets_now(policy: Policy, slos: Sequence[Slo]) -> list[PlacedPanel]:
    left = remaining(f"slo, {identity.MODEL}")
    spent = policy.budget[-1].what if policy.budget else "stop what spends them"
    return [
        stat(
            "Budgets overdrawn",
            PanelText("Budgets that are exhausted, of a model or of all jobs.", "0", spent, _NOTHING),
            Query(f"sum({left} < bool 0)", instant=True),
            unit="short",
            steps=(ColorStep(1.0, palette.BAD),),
            links=_links(policy),
        ),
        stat(
            "Least budget left",
            PanelText(
                "What is left of the budget that is spent most.",
                "more than the policy acts on",
                "see in the table which it is, and who spends it",
                _NOTHING,
            ),
            Query(f"min({left})", instant=True),
            unit="percentunit",
            steps=budget_steps(policy),
            links=_links(policy),
        ),
        stat(
            "Fastest burn in an hour",
            PanelText(
                "How many times faster than allowed the worst budget was spent in the last hour.",
                "below 1",
                "amber: spent faster than allowed; red: fast enough to page. See below which budget it is",
                _NOTHING,
            ),
            Query(f"max({burn_rate('1h', 'slo')})", instant=True),
            unit="short",
            steps=burn_steps("1h", slos),
            links=_links(policy),
        ),
    ]


def _alerts_now(policy: Policy) -> list[PlacedPanel]:
    none = f"0 * count({OBJECTIVE})"
    unmeasured = f"max by (slo) ({OBJECTIVE}) unless on (slo) ({TOTAL} > 0)"
    told = [
        stat(
            f"{severity.capitalize()}s firing",
            PanelText(
                f"Alerts that fire now with the severity {severity}.", "0", "the table below leads to their runbooks", _NO_RULES
            ),
            Query(f"count({firing(severity=severity)}) or {none}", instant=True),
            unit="short",
            steps=(ColorStep(1.0, color),),
            links=[Link("All runbooks", runbook_url(policy, "README"))],
        )
        for severity, color in (("page", palette.BAD), ("ticket", palette.WARN))
    ]
    return [
        *told,
        stat(
            "Not measured",
            PanelText(
                "Objectives without events in the last minutes: neither met nor violated.",
                "only those of what you do not run, such as inference where there is only training",
                "what is served or trains, and is not measured, may fail unseen",
                _NO_RULES,
            ),
            Query(f"count({unmeasured}) or {none}", instant=True),
            unit="short",
            steps=(ColorStep(1.0, palette.UNKNOWN),),
            links=[runbook(policy, "InferenceObjectivesNotMeasured"), runbook(policy, "TrainingObjectivesNotMeasured")],
        ),
    ]


def _objectives(policy: Policy, slos: Sequence[Slo]) -> PlacedPanel:
    by = "slo, area"
    queries = [Query(f"max by ({by}) ({OBJECTIVE})", name="target"), Query(remaining(by), name="left")]
    columns = [
        Column("slo", "Objective", link=links.board("slos", "This one below", KEPT | {"slo": "${__value.raw}"})),
        Column("area", "Area"),
        Column("target", "Target", "percentunit"),
    ]
    for window in WINDOWS:
        queries.append(Query(f"1 - max by ({by}) ({error_ratio(window)})", name=f"good{window}"))
        columns.append(Column(f"good{window}", f"Good {window}", "percentunit"))
    columns.append(Column("left", "Budget left", "percentunit", budget_steps(policy)))
    for window in WINDOWS:
        queries.append(Query(burn_rate(window, by), name=f"burn{window}"))
        columns.append(Column(f"burn{window}", f"Burn {window}", "short", burn_steps(window, slos)))
    return table(
        "Objectives",
        PanelText(
            "Each objective: its target, the share of good events in the last hour, day and three days, what is left of its "
            "budget, and how many times faster than allowed it is spent. Where each model has a budget, the worst of them.",
            "green in each row; a burn below 1 over three days",
            "red burns fast enough to page, amber faster than allowed; choose the objective to see who spends it",
            "no events",
        ),
        queries,
        columns,
        height=13,
        sort="Budget left",
        descending=False,
        links=_links(policy),
    )


def _over_time(policy: Policy, slos: Sequence[Slo]) -> list[PlacedPanel]:
    days = " or ".join(f"{days:g}" for days in sorted({slo.period_days for slo in slos}))
    return [
        timeseries(
            "Budgets",
            PanelText(
                f"What is left of each budget of {days} days; of several models the worst; cut off where twice of it is spent. "
                "Lines: where the policy acts.",
                "level, or rising as bad days fall out of the period",
                "a steep fall is an incident, a slow one a new normal: choose the objective and see who spends it",
                _NOTHING,
            ),
            [Query(f"clamp_min({remaining('slo')}, -1)", "{{slo}}")],
            unit="percentunit",
            minimum=None,
            maximum=1.0,
            steps=budget_steps(policy),
            links=_links(policy),
        ),
        timeseries(
            "Burn rates over an hour",
            PanelText(
                "How many times faster than allowed each budget is spent, the ten worst; the line is 1.",
                "below 1; peaks are what budgets are for",
                "choose the objective: its longer windows say whether it lasts",
                _NOTHING,
            ),
            [Query(f"topk(10, {burn_rate('1h', 'slo')})", "{{slo}}")],
            unit="short",
            steps=(ColorStep(1.0, palette.WARN),),
            links=_links(policy),
        ),
    ]


def _firing(policy: Policy) -> PlacedPanel:
    page = Link("Runbook", f"{policy.runbook_base}/${{__value.raw}}.md")
    columns = (
        Column("severity", "Severity"),
        Column("alertname", "Alert", link=page),
        Column("slo", "Objective", link=links.board("slos", "This one", KEPT | {"slo": "${__value.raw}"})),
        Column(
            "service",
            "Service",
            link=links.board("inference", "Inference", identity.service_of_row(KEPT)),
        ),
        Column("model", "Model"),
        Column(
            "training_job",
            "Job",
            link=links.board("training", "This job", identity.job_of_row(KEPT)),
        ),
        Column("instance", "Node", link=links.board("gpu-node", "This node", KEPT | {"node": "${__value.raw}"})),
        *identity.COLUMNS,
        Column("owner", "Owner"),
    )
    return table(
        "Alerts that fire",
        PanelText(
            "Alerts of objectives and of events, with what they are about; their names lead to their runbooks.",
            "none",
            "pages first; several of one objective are one incident",
            "none fires",
        ),
        [Query(firing(more="owner"))],
        columns,
        sort="Severity",
        descending=False,
        links=[Link("All runbooks", runbook_url(policy, "README"))],
    )


def _promises(policy: Policy, slos: Sequence[Slo]) -> PlacedPanel:
    rows = ["| objective | what it promises | target | owner | runbook | board |", "|---|---|---|---|---|---|"]
    for slo in slos:
        one = links.board("slos", "", KEPT).url
        where = links.board(slo.dashboard, "", CLUSTER_KEPT if board_name(slo.dashboard) == "fleet" else KEPT).url
        cells = (
            f"[{slo.name}]({one}&var-slo={slo.name})",
            f"**{slo.title}** {slo.description}",
            f"{slo.target * 100:g} % in {slo.period_days:g} d",
            slo.owner,
            f"[{slo.alert}]({runbook_url(policy, slo.alert)})",
            f"[{slo.dashboard}]({where})" if slo.dashboard else "",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return text("\n".join(rows), height=3 + 3 * len(slos) // 2)
