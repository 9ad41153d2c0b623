"""The report on objectives: one JSON document; every reader renders it and computes nothing itself. Times are Unix seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = 1

State = Literal["ok", "burning", "exhausted", "not_measured"]
"""`exhausted`: nothing is left of the budget. `burning`: a tier fires. `not_measured`: no events; it is not known to be met.

An exhausted budget may burn too: whether it does is in its `burns`.
"""


class Burn(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the budget is spent over the windows of a tier; 1: it would just last for the period.

    Attributes:
        threshold: the factor from which on the tier fires. long, short: the factors; None: no events in the window.
        fires: both are above the threshold, with events and history enough. held: both are above it, and yet it does not fire:
            what is too little.
    """

    severity: Literal["page", "ticket"]
    long_seconds: float
    short_seconds: float
    threshold: float
    long: float | None
    short: float | None
    fires: bool
    held: str = ""


class Offender(msgspec.Struct, frozen=True, kw_only=True):
    """One of the worst by a label.

    Attributes:
        kind: what the label names. An instance is what a Prometheus scrapes, which in a store is the host.
        bad: events or seconds, out of `of`: all bad ones of the budget in the same time from the same series. share: bad / of.
    """

    kind: Literal["job", "service", "host", "instance", "shard"]
    value: str
    bad: float
    of: float
    share: float


class BudgetPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What was left of the budget at a time within the period, 1 at its start. measured: whether there were samples before it,
    since the last point.
    """

    time: float
    left: float
    measured: bool


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How one objective stands for one set of its labels, such as one service and model.

    Attributes:
        attainment: ratio of good events over the period, weighted by events; attainment_day: over the last day. None: no events,
            and of the day where the period is shorter.
        bad, total: events of the period, or of slices and of counted seconds: seconds.
        left: part of the error budget that is left; below 0 it is overdrawn.
        coverage: part of the period for which there were samples, 0 to 1. recent: whether there are any of the last hour.
        why: why it is not measured. offenders: of the last day, or of the period where it is shorter, the worst first.
        raw_offenders: they were counted again from raw series, and all else is from what rules recorded: counts may differ.
    """

    labels: dict[str, str]
    state: State
    why: str = ""
    attainment: float | None = None
    attainment_day: float | None = None
    bad: float = 0.0
    total: float = 0.0
    left: float | None = None
    coverage: float = 0.0
    recent: bool = False
    burns: list[Burn] = []
    offenders: list[Offender] = []
    raw_offenders: bool = False
    burn_down: list[BudgetPoint] = []


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """An objective and its budgets, the one in the worst state first.

    Attributes:
        unit: of `bad` and `total`. summed_over: whose seconds they are, such as ranks; empty: events, or nobody knows.
    """

    name: str
    title: str
    area: str
    owner: str
    alert: str
    target: float
    period_days: float
    unit: Literal["events", "seconds"]
    summed_over: str = ""
    budgets: list[Budget]

    @property
    def state(self) -> State:
        """The worst state of its budgets."""
        return self.budgets[0].state


class SloReport(msgspec.Struct, frozen=True, kw_only=True):
    """How all objectives stand at a time, as a source has it. notes: what of the source could not be read, or needs to be known."""

    schema: int = SCHEMA
    time: float
    source: str
    objectives: list[Objective]
    notes: list[str] = []


def dump(report: SloReport) -> bytes:
    """Return the report as indented JSON that ends with a newline."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
