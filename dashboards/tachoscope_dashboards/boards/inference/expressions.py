"""Expressions of the inference board: of the clusters, namespaces, services and models that are chosen."""

from __future__ import annotations

from tachoscope_alerts.compile.sli_expressions import selector
from tachoscope_alerts.spec.slo import Ratio, Selector
from tachoscope_dashboards.boards.shared.identity import MODEL
from tachoscope_dashboards.parts.slo_objectives import indicator
from tachoscope_dashboards.parts.variables import CHOSEN_PLACE, OF_WORKLOADS

SERVERS = f'{OF_WORKLOADS}, service=~"$service"'
"""Matchers of series that know no model."""
HERE = f'{SERVERS}, model=~"$model"'
RATE, RECENT = "[$__rate_interval]", "[5m]"
"""Windows of rates: over time, and in tables, which are of now."""
FIRST, BETWEEN = "tachoscope_request_first_token_seconds", "tachoscope_request_inter_token_seconds"
_RECORDED = f'{CHOSEN_PLACE}, service=~"$service", model=~"$model"'


def attained(name: str) -> str:
    """Return the share of good events of an objective over the chosen time, from the events that its rules record."""
    bad, total = (f'sum(sum_over_time(slo:{kind}_events:base{{slo="{name}", {_RECORDED}}}[$__range]))' for kind in ("bad", "total"))
    return f"1 - {bad} / ({total} > 0)"


def good_share(name: str) -> str:
    """Return the share of good events of an objective on counters by service and model, from the series that its spec names."""
    ratio = indicator(name, Ratio)
    return _share(ratio.good, ratio.total, RATE) if ratio.good else f"1 - {_share(ratio.bad, ratio.total, RATE)}"


def bad_share(name: str, window: str) -> str:
    """Return the share of bad events in the same way."""
    ratio = indicator(name, Ratio)
    return _share(ratio.bad, ratio.total, window) if ratio.bad else f"1 - {_share(ratio.good, ratio.total, window)}"


def quantile(part: float, metric: str, by: str = "le", window: str = RATE) -> str:
    """Return a quantile of a histogram; nothing where there were no events, of which Prometheus would say NaN."""
    return f"histogram_quantile({part:g}, sum by ({by}) (rate({metric}_bucket{{{HERE}}}{window}))) >= 0"


def common_buckets(metric: str) -> str:
    """Return a histogram of all that is chosen, in the buckets that each of its series has.

    Servers of different makes have different bounds: a sum over some of them would count less below a higher bound.
    """
    rate, all_of_them = (f"rate({metric}_bucket{{{HERE}{one}}}{RATE})" for one in ("", ', le="+Inf"'))
    return f"sum by (le) ({rate}) and on (le) (count by (le) ({rate}) == on () group_left () count({all_of_them}))"


def by_state(metric: str) -> str:
    """Return the share of each state of a ledger."""
    rate = f"rate({metric}{{{HERE}}}{RATE})"
    return f"sum by (state) ({rate}) / on () group_left () (sum({rate}) > 0)"


def by_model(expression: str) -> str:
    """Return the sum of an expression by service and model."""
    return f"sum by ({MODEL}) ({expression})"


def _share(part: Selector | None, of: Selector, window: str) -> str:
    assert part is not None  # of the bad and the good events a spec names one
    events, total = (by_model(f"rate({selector(one, extra=(HERE,))}{window})") for one in (part, of))
    return f"({events} or 0 * {total}) / ({total} > 0)"
