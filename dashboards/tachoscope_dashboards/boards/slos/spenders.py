"""The second half of the SLO board: one objective, and who spends its budget."""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_alerts.compile.sli_expressions import BAD, TOTAL, bound_matcher, selector
from tachoscope_alerts.spec.burn_rate_windows import duration
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import AtMost, Slices, Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.training import EFFECTIVE_STATES, TRAINING_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import CLUSTER_KEPT, KEPT
from tachoscope_dashboards.boards.slos.expressions import CHOSEN, budget_steps, burn_rate, burn_steps, remaining
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, PanelText, PlacedPanel, Query, table, timeseries
from tachoscope_dashboards.parts.slo_objectives import LEFT_OUT_STATES, above, colors_below, indicator, objective
from tachoscope_dashboards.parts.variables import WHERE

_CLUSTER = 'cluster=~"$cluster"'
JOB_TIME = "job_state:tachoscope_job_time:rate1m"
"""Rank-seconds a second of each job and state: ranks."""
NEVER = 1e12
"""Stands for the age of a checkpoint that never was."""
_BURN_WINDOWS = ("5m", "1h", "6h", "1d", "3d")


LOST_STATES = tuple(state for state in TRAINING_STATES if state not in {*EFFECTIVE_STATES, LEFT_OUT_STATES})
"""Those of a rank's ledger that spend the budget of the effective training time."""


def chosen_objective(policy: Policy) -> list[PlacedPanel]:
    """Return how fast the budget of the chosen objective is spent, what is left of it, and how much is counted."""
    return [
        timeseries(
            "Burn rate of $slo by window",
            PanelText(
                "How many times faster than allowed the budget is spent; the worst service and model. The line is 1: all of it "
                "goes in its period.",
                "below 1",
                "short windows above long ones: it began lately, look for what changed; below: it is over, and what is "
                "spent stays spent",
                "nothing happened that counts, or no rules are loaded",
            ),
            [Query(burn_rate(window, "slo", CHOSEN), window) for window in _BURN_WINDOWS],
            unit="short",
            width=10,
            steps=(ColorStep(1.0, palette.WARN),),
            links=[explorer(policy, "slos", "Objectives, in the explorer", {"slo": "${slo}"})],
        ),
        timeseries(
            "Budget of $slo",
            PanelText(
                "What is left of the budget, of the ten services and models that have least. 0: all is spent.",
                "above what the policy acts on, the lines",
                f"below 0: {policy.budget[-1].what}" if policy.budget else "see who spends it",
                "nothing happened that counts, or no rules are loaded",
            ),
            [Query(f"bottomk(10, {remaining(f'slo, {identity.MODEL}', CHOSEN)})", f"{{{{slo}}}} {identity.MODEL_LEGEND}")],
            unit="percentunit",
            width=7,
            minimum=None,
            maximum=1.0,
            steps=budget_steps(policy),
            links=[explorer(policy, "slos", "Objectives, in the explorer", {"slo": "${slo}"})],
        ),
        timeseries(
            "Events of $slo",
            PanelText(
                "What is counted: requests, tokens, steps or rank-seconds a second; of slices of time the jobs, ranks or GPUs.",
                "bad ones are few, and the others as many as at this hour a day ago",
                "few events: a ratio of few says little; none: read the runbook of objectives that are not measured",
                "nothing happened that counts, or no rules are loaded",
            ),
            [Query(f"sum({TOTAL}{{{CHOSEN}}})", "all"), Query(f"sum({BAD}{{{CHOSEN}}})", "bad")],
            unit="short",
            width=7,
            colors={"all": palette.SERIES[0], "bad": palette.BAD},
            links=[runbook(policy, "TrainingObjectivesNotMeasured"), runbook(policy, "InferenceObjectivesNotMeasured")],
        ),
    ]


def by_model(policy: Policy, slos: Sequence[Slo]) -> PlacedPanel:
    """Return which service and model spends the budget of the chosen objective."""
    chosen, each = f'service!="", {CHOSEN}', identity.MODEL
    bad = f"sum_over_time({BAD}{{{chosen}}}[$__range])"
    queries = (
        Query(f"sum by ({each}) ({bad}) / on () group_left () (sum({bad}) > 0)"),
        Query(f"sum by ({each}) ({BAD}{{{chosen}}})"),
        Query(burn_rate("1h", each, chosen)),
        Query(burn_rate("1d", each, chosen)),
        Query(remaining(each, chosen)),
    )
    this_row = {"service": "${__data.fields.Service}", "model": "${__data.fields.Model}"}
    columns = (
        Column(
            "service",
            "Service",
            link=links.board("inference", "What limits it", identity.service_of_row(KEPT)),
        ),
        Column("model", "Model", link=explorer(policy, "inference", "Its requests, in the explorer", this_row)),
        *identity.COLUMNS,
        Column("A", "Of all bad", "percentunit"),
        Column("B", "Bad a second", "short"),
        Column("C", "Burn 1h", "short", burn_steps("1h", slos)),
        Column("D", "Burn 1d", "short", burn_steps("1d", slos)),
        Column("E", "Budget left", "percentunit", budget_steps(policy)),
    )
    return table(
        "Who spends $slo: services and models",
        PanelText(
            "Each model has a budget of its own. Of all bad: its share of the bad events of the chosen time.",
            "green in each row",
            "take the model with the largest share; red burns fast enough to page, amber faster than allowed",
            "not an objective of inference, or no requests",
        ),
        queries,
        columns,
        width=24,
        height=8,
        sort="Of all bad",
        links=[runbook(policy, alert) for alert in ("InferenceAvailabilityBurn", "InferenceTimeToFirstTokenBurn")],
    )


def lost_time(policy: Policy) -> PlacedPanel:
    """Return what ranks do while they spend the budget of the effective training time."""
    goodput, states = objective("training-goodput"), LOST_STATES
    return timeseries(
        "What spends the budget of the effective training time",
        PanelText(
            "Ranks that bring no step forward, by what they do instead: the states that the objective counts as bad.",
            f"together at most {goodput.budget * 100:.3g} % of all ranks",
            "data_wait, checkpoint and restore have boards of their own; hung and unexplained: open the job",
            "no job is running, or no rules are loaded",
        ),
        [Query(f'sum by (state) ({JOB_TIME}{{state=~"{"|".join(states)}", {_CLUSTER}}})', "{{state}}")],
        unit="short",
        width=24,
        stacked=True,
        colors={state: palette.STATE_COLORS[state] for state in states},
        links=[runbook(policy, goodput.alert), links.board("fleet", "Fleet", CLUSTER_KEPT)],
    )


def by_job(policy: Policy) -> PlacedPanel:
    """Return which training jobs spend the budgets: those are of all jobs together."""
    goodput, wait, steps, age = (
        objective(f"training-{name}") for name in ("goodput", "input-wait", "step-regularity", "checkpoint-age")
    )
    columns = (
        Column(
            "training_job",
            "Job",
            link=links.board("training", "This job", identity.job_of_row(KEPT)),
        ),
        *identity.COLUMNS,
        Column("A", "Of all lost", "percentunit", link=explorer(policy, "job", "In the explorer", {"job": "${__data.fields.Job}"})),
        Column("B", "Lost", "percentunit", _spent(goodput)),
        Column("C", "Waits for data", "percentunit", above(wait.name)),
        Column("D", "Slow steps", "percentunit", _spent(steps)),
        Column("E", "SM active", "percentunit", colors_below("gpu-efficiency")),
        Column("F", "Verified checkpoint", "s", above(age.name), texts={f"{NEVER:.0f}": "never"}),
    )
    return table(
        "Who spends it: training jobs",
        PanelText(
            "Objectives of training have one budget for all jobs. Of all lost: the job's share of the rank time that brought "
            "no step forward; lost: the share of its own time; both over the chosen time, the others of now. Amber: beyond what an "
            "objective allows on average.",
            "no amber; large jobs lose most even where they do well",
            "open the job that lost most; a job with an old or never verified checkpoint loses everything since then in a failure",
            "no job is running, or no rules are loaded",
        ),
        _of_jobs(steps, age),
        columns,
        height=10,
        sort="Of all lost",
        links=[runbook(policy, slo.alert) for slo in (goodput, wait, steps, age, objective("gpu-efficiency"))],
    )


def _of_jobs(steps: Slo, age: Slo) -> list[Query]:
    is_lost, is_held = f'state=~"{"|".join(LOST_STATES)}"', f'state!~"{LEFT_OUT_STATES}"'
    lost, held = (f"sum_over_time({JOB_TIME}{{{state}, {_CLUSTER}}}[$__range])" for state in (is_lost, is_held))
    waits, all_now = (f"{JOB_TIME}{{{state}, {_CLUSTER}}}" for state in ('state="data_wait"', is_held))
    each = f"sum by ({identity.JOB})"
    return [
        Query(f"{each} ({lost}) / on () group_left () (sum({lost}) > 0)"),
        Query(f"{each} ({lost}) / ({each} ({held}) > 0)"),
        Query(f"{each} ({waits}) / ({each} ({all_now}) > 0)"),
        Query(_slow_steps(steps)),
        Query(f"avg by ({identity.JOB}) (job:tachoscope_sm_active:mean1m{{{_CLUSTER}}})"),
        Query(_checkpoint_age(age)),
    ]


def _spent(slo: Slo) -> tuple[ColorStep, ...]:
    return (ColorStep(round(slo.budget, 9), palette.WARN),)


def _slow_steps(slo: Slo) -> str:
    found = indicator(slo.name, AtMost)
    good = selector(found.histogram, "_bucket", (bound_matcher(found.bound), WHERE))
    total = selector(found.histogram, "_count", (WHERE,))
    each = f"sum by ({identity.JOB})"
    return f"clamp_min(1 - {each} (rate({good}[5m])) / ({each} (rate({total}[5m])) > 0), 0)"


def _checkpoint_age(slo: Slo) -> str:
    found = indicator(slo.name, Slices)
    if found.gate is None:
        raise TachoscopeError(
            f"the objective {slo.name} has no gate; its panel shows jobs that run", fix="keep its gate: as shipped"
        )
    active, on = selector(found.gate.selector, extra=(WHERE,)), f"on ({identity.JOB})"
    is_active, since = f"(max by ({identity.JOB}) ({active}) == 1)", duration(found.gate.since_seconds)
    age = f"max by ({identity.JOB}) (time() - {selector(found.value, extra=(WHERE,))})"
    never = f"{NEVER:.0f} * max by ({identity.JOB}) ({active} offset {since})"
    return f"({age} and {on} {is_active}) or ({never} == {NEVER:.0f} and {on} {is_active})"
