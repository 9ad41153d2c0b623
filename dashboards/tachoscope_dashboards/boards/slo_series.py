"""Expressions of the SLO board: what the rules of the objectives record, and the colours that follow from policy and tiers.

Ratios over days and budgets are recorded every four minutes, and a query of a moment looks back five: they are read as they
were last seen, so that an evaluation may be missed.
"""

from __future__ import annotations

import math

from tachoscope_alerts.expressions import BUDGET_REMAINING, ERROR_RATIO, OBJECTIVE
from tachoscope_alerts.policy import Policy
from tachoscope_alerts.windows import DAY, RAW_LIMIT_SECONDS, TIERS, Timing, duration, seconds_of
from tachoscope_core import palette
from tachoscope_dashboards.panels import Step

CHOSEN = 'slo=~"$slo"'
"""Rules of objectives sum up clusters and namespaces, so that those cannot be chosen of what they record."""
WINDOWS = ("1h", "1d", "3d")
_SEEN = duration(2 * Timing().slow_interval)


def error_ratio(window: str, matchers: str = "") -> str:
    """Return the share of bad events over a window, of each budget."""
    series = f'{ERROR_RATIO}{{{matchers}window="{window}"}}'
    return series if seconds_of(window) <= RAW_LIMIT_SECONDS else f"last_over_time({series}[{_SEEN}])"


def burn_rate(window: str, by: str, matchers: str = "") -> str:
    """Return how many times faster than allowed a budget is spent: 1 spends it within its period. Of several budgets the worst."""
    ratio = error_ratio(window, f"{matchers}, " if matchers else "")
    return f"max by ({by}) ({ratio} / on (slo) group_left () (1 - max by (slo) ({OBJECTIVE})))"


def remaining(by: str, matchers: str = "") -> str:
    """Return what is left of a budget: 1 of an untouched one, below 0 of an overdrawn one. Of several budgets the worst."""
    return f"min by ({by}) (last_over_time({BUDGET_REMAINING}{{{matchers}}}[{_SEEN}]))"


def burn_steps(window: str, period_days: float) -> tuple[Step, ...]:
    """Return the colours of the burn rate over a window: amber from 1 on or where it tickets, red where it pages."""
    tiers = [tier for tier in TIERS if duration(tier.long_seconds) == window]
    fires = {tier.severity: round(tier.factor(period_days * DAY), 3) for tier in tiers}
    amber, red = min(1.0, fires.get("ticket", 1.0)), fires.get("page", math.inf)
    return tuple(Step(at, color) for at, color in ((amber, palette.WARN), (red, palette.BAD)) if at < math.inf and at <= red)


def budget_steps(policy: Policy) -> tuple[Step, ...]:
    """Return the colours of what is left of a budget: red where the policy's last step applies, amber where its first does."""
    levels = sorted(step.remaining_below for step in policy.budget)
    if not levels:
        return ()
    return (Step(float("-inf"), palette.BAD), Step(levels[0], palette.WARN), Step(levels[-1], palette.OK))
