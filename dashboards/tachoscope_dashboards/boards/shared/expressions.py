"""Expressions that boards of nodes, jobs and agents share: states as numbers, how many of how many, what was promised."""

from __future__ import annotations

from collections.abc import Mapping

from tachoscope_alerts.compile.sli_expressions import ERROR_RATIO
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.metric import NAMESPACE
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.panels import PanelText, PlacedPanel, Query, stat
from tachoscope_dashboards.parts.slo_objectives import at_least, objective
from tachoscope_dashboards.parts.variables import ONE_JOB

RATE, WHOLE = "[$__rate_interval]", "[$__range]"
"""Windows: of what is drawn over time, and the whole time that is looked at, of tables and single numbers."""
CLUSTER_KEPT = {"cluster": "${cluster}"}
KEPT = CLUSTER_KEPT | {"namespace": "${namespace}"}
"""Variables that a link to another board takes along as they are; those to and from Fleet the first alone."""
JOBS_KEPT = KEPT | {NAMESPACE: f"${{{NAMESPACE}}}"}
"""Those between boards of jobs; likewise of services."""
JOB_KEPT = KEPT | {"cluster": "${job_cluster}", NAMESPACE: "${job_namespace}", "training_job": "${training_job}"}
"""Those from a board of one job to one of several; to another of one job it is `ONE_JOB_KEPT`."""
ONE_JOB_KEPT = JOBS_KEPT | {one.name: f"${{{one.name}}}" for one in ONE_JOB}


def numbered(metric: str, where: str, label: str, numbers: Mapping[int, str], by: str) -> str:
    """Return an expression whose value is the highest number that holds, 0 if none does, for a band whose colour is a state.

    Args:
        metric: a gauge, 1 for what holds and 0 for the rest. label: that says what. numbers: with the label's values, a|b.
        by: the labels that make a band.
    """
    each = " or ".join(f'{number} * {metric}{{{where}, {label}=~"{values}"}}' for number, values in numbers.items())
    return f"max by ({by}) ({each})"


def how_many(found: str, everything: str) -> str:
    """Return how many there are of `found`: 0 if there are others, and nothing if there is nothing to look at."""
    return f"count({found}) or 0 * count({everything})"


def attained(
    policy: Policy, name: str, title: str, otherwise: str, window: str = "1d", width: int = 4, height: int = 4
) -> PlacedPanel:
    """Return the share of good events of an objective over a window for which it is recorded, of all jobs together."""
    slo = objective(name)
    about = PanelText(
        f"{slo.description} Of all jobs of all clusters, namespaces, teams and nodes, within the last {window}.",
        f"{slo.target:.0%} or more",
        otherwise,
        f"nothing to count within {window}",
    )
    found = Query(f'1 - max({ERROR_RATIO}{{slo="{name}", window="{window}"}})', instant=True)
    leads = [links.runbook(policy, slo.alert), links.board("slos", "Its budget", KEPT | {"slo": name})]
    return stat(title, about, found, unit="percentunit", width=width, height=height, steps=at_least(name), links=leads)
