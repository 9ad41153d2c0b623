"""Expressions of the SLO board: what the rules of the objectives record, and the colours that follow from policy and tiers.

Ratios over days and budgets are recorded every four minutes, and a query of a moment looks back five: they are read as they
were last seen, so that an evaluation may be missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tachoscope_alerts.compile.sli_expressions import BUDGET_REMAINING, ERROR_RATIO, OBJECTIVE
from tachoscope_alerts.spec.burn_rate_windows import RAW_LIMIT_SECONDS, Timing, duration, seconds_of, tiers
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.report import palette
from tachoscope_dashboards.parts.panels import ColorStep

CHOSEN = 'slo=~"$slo"'
"""What rules of objectives record is shown of all clusters and namespaces, the worst of them."""
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


def burn_steps(window: str, slos: Iterable[Slo]) -> tuple[ColorStep, ...]:
    """Return the colours of the burn rate over a window: amber from 1 on, red where the first of the objectives pages."""
    pages = [tier for slo in slos for tier in tiers(slo) if tier.severity == "page" and duration(tier.long_seconds) == window]
    amber, red = 1.0, min((round(tier.burn_rate, 3) for tier in pages), default=math.inf)
    return tuple(ColorStep(at, color) for at, color in ((amber, palette.WARN), (red, palette.BAD)) if at < math.inf and at <= red)


def budget_steps(policy: Policy) -> tuple[ColorStep, ...]:
    """Return the colours of what is left of a budget: red where the policy's last step applies, amber where its first does."""
    levels = sorted(step.remaining_below for step in policy.budget)
    if not levels:
        return ()
    return (ColorStep(float("-inf"), palette.BAD), ColorStep(levels[0], palette.WARN), ColorStep(levels[-1], palette.OK))
