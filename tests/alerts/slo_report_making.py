"""A report with a budget in each state."""

from __future__ import annotations

from msgspec.structs import replace

from tachoscope_alerts.report.schema import Budget, BudgetPoint, Burn, Objective, Offender, SloReport

END = 1_700_006_400.0
DAY = 86400.0
BUDGET = Budget(
    labels={},
    state="ok",
    attainment=0.996,
    attainment_day=0.999,
    bad=40.0,
    total=10000.0,
    left=0.6,
    coverage=1.0,
    recent=True,
    burns=[Burn(severity="page", long_seconds=3600, short_seconds=300, threshold=13.44, long=0.5, short=0.25, fires=False)],
    burn_down=[
        BudgetPoint(time=END - 28 * DAY, left=1.0, measured=True),
        BudgetPoint(time=END - 14 * DAY, left=0.8, measured=True),
        BudgetPoint(time=END, left=0.6, measured=True),
    ],
)
BURNING = replace(
    BUDGET,
    labels={"service": "chat", "model": "m-8b"},
    state="burning",
    left=0.25,
    burns=[replace(BUDGET.burns[0], long=20.5, short=30.0, fires=True)],
    offenders=[
        Offender(kind="host", value="gpu-7", bad=30.0, of=40.0, share=0.75),
        Offender(kind="job", value="<b>&", bad=10.0, of=40.0, share=0.25),
    ],
)
EXHAUSTED = replace(
    BUDGET,
    labels={"service": "code", "model": "m-8b"},
    state="exhausted",
    left=-2.5,
    burn_down=[
        BudgetPoint(time=END - 28 * DAY, left=1.0, measured=False),
        BudgetPoint(time=END - 14 * DAY, left=1.0, measured=False),
        BudgetPoint(time=END, left=-2.5, measured=True),
    ],
)
UNKNOWN = Budget(labels={}, state="not_measured", why="no samples of x in the period")
OBJECTIVE = Objective(
    name="inference-ttft-p99",
    title="Time to first token",
    area="inference",
    owner="inference-serving",
    alert="InferenceTimeToFirstTokenBurn",
    target=0.99,
    period_days=28.0,
    unit="events",
    budgets=[BUDGET],
)
REPORT = SloReport(
    time=END,
    source="store",
    objectives=[
        replace(OBJECTIVE, budgets=[EXHAUSTED, BURNING]),
        replace(OBJECTIVE, name="training-goodput", title="Goodput", alert="TrainingGoodputBurn", unit="seconds"),
        replace(OBJECTIVE, name="training-recovery", title="Recovery", budgets=[UNKNOWN]),
    ],
    notes=["3 lines or points make no sense, or are older than the one before"],
)
