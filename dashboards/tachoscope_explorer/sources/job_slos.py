"""Which objectives a job meets by its own measurements, and which budgets it spends faster than they allow.

A budget is of all jobs over weeks, and is on the page Objectives. For a list that would be too dear: here a job's own events are
compared with each objective's bound and target, as the specs have them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import streamlit as st

from tachoscope_alerts.measure.attainment import attained
from tachoscope_alerts.spec import files, openslo
from tachoscope_alerts.spec.slo import Slo
from tachoscope_analyzers.fleet.slo_events import Events
from tachoscope_core.errors import TachoscopeError
from tachoscope_show.text.units import percent

HELP = (
    "The job's own events against the objectives that tachoscope ships: the share that was good, and the target. Below the target "
    "it spends the budget that all jobs share faster than that allows. Training: effective time and recoveries of the whole life, "
    "waiting for data and regularity of the last attempt's steps; services: the last hour of requests. What is left of the "
    "budgets is on the page Objectives."
)


@dataclass(frozen=True, slots=True)
class Attainment:
    """How one objective is met by a job: ratios of good events, 0 to 1."""

    name: str
    attained: float
    target: float

    @property
    def is_met(self) -> bool:
        """Whether the job spends no more of the budget than it allows."""
        return self.attained >= self.target


@st.cache_resource(show_spinner=False)
def objectives() -> tuple[Slo, ...]:
    """Return the objectives that are in force here; none if they cannot be read: the page Objectives says why."""
    try:
        return tuple(openslo.load([files.path_of("slos")]))
    except TachoscopeError:
        return ()


def attainments(events: Events, slos: Iterable[Slo]) -> list[Attainment]:
    """Return the objectives of which the job has events, the worst first."""
    counters = [(count.metric, count.labels, count.amount) for count in events.counters]
    pairs = [(slo, attained(slo, counters, events.histograms)) for slo in slos]
    found = [Attainment(slo.name, ratio, slo.target) for slo, ratio in pairs if ratio is not None]
    return sorted(found, key=lambda one: (one.is_met, one.attained - one.target))


def describe(found: list[Attainment]) -> str:
    """Return them in a cell: the objectives that are not met with their figures, or how many are."""
    below = [one for one in found if not one.is_met]
    if not found:
        return "not measured"
    if not below:
        return f"meets {len(found)} of {len(found)}"
    told = ", ".join(f"{one.name} {percent(one.attained)} of {percent(one.target)}" for one in below)
    return f"below {len(below)} of {len(found)}: {told}"
