"""The expressions of a training job that several of its panels use. All are of the job that is chosen."""

from __future__ import annotations

from tachoscope_dashboards.parts import slo_objectives
from tachoscope_dashboards.parts.variables import THIS_JOB

JOB = THIS_JOB
RANKS = f'{JOB}, rank=~"$rank"'
NO_JOB = "the job does not run, or none is chosen"


def job_rate(series: str, *more: str, window: str = "$__rate_interval") -> str:
    """Return the rate of series of the job; `more` are matchers."""
    return f"rate({series}{{{', '.join((JOB, *more))}}}[{window}])"


def share(states: str) -> str:
    """Return the share of the job's time that is in some states, a pattern; what the objective leaves out is not counted."""
    name, left_out = "tachoscope_job_time_seconds_total", slo_objectives.LEFT_OUT_STATES
    part, counted = job_rate(name, f'state=~"{states}"'), job_rate(name, f'state!~"{left_out}"')
    return f"sum({part}) / (sum({counted}) > 0)"


def mean(histogram: str, window: str = "$__rate_interval") -> str:
    """Return the mean of what a histogram of the job counts; nothing where it counted nothing."""
    parts = (job_rate(f"{histogram}_{part}", window=window) for part in ("sum", "count"))
    total, count = parts
    return f"sum({total}) / (sum({count}) > 0)"


def quantile(part: float, histogram: str, window: str = "$__rate_interval") -> str:
    """Return the value below which that part of what a histogram of the job counts is."""
    return f"histogram_quantile({part:g}, sum by (le) ({job_rate(f'{histogram}_bucket', window=window)}))"


def rank_time(states: str, matchers: str = RANKS, window: str = "$__rate_interval") -> str:
    """Return the share of its time that each rank spends in some states, a pattern; "" of all."""
    chosen = f', state=~"{states}"' if states else ""
    return f"sum by (rank) (rate(tachoscope_time_seconds_total{{{matchers}{chosen}}}[{window}]))"
