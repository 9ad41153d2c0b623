"""Tests of the generated rules for `promtool test rules`: each alert fires in its fault and is quiet in what only looks like it.

Of an objective the series are planted from its indicator, so that a selector that finds nothing makes a test fail. promtool
evaluates all groups of a file at one interval, whatever theirs is; tickets, whose windows are days, have a file of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tachoscope_alerts.compile.annotations import annotations_of, filled_in
from tachoscope_alerts.compile.event_alerts import EventAlert, group_names, tests_of
from tachoscope_alerts.compile.event_alerts import labels_of as labels_of_event
from tachoscope_alerts.compile.planted_series import PlantedSeries, PlantedStretch, labels_of, of_events, of_slices
from tachoscope_alerts.compile.recordings import GROUP as RECORDINGS
from tachoscope_alerts.compile.recordings import Recording, needed
from tachoscope_alerts.compile.rules import HISTORY, SUFFIXES, least_bad, windows_of
from tachoscope_alerts.compile.sli_expressions import ERROR_RATIO, MOMENTS, SUMS, number, quoted, recorded
from tachoscope_alerts.spec.burn_rate_windows import HOUR, RAW_LIMIT_SECONDS, Tier, Timing, duration, tiers
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Slices, Slo

Document = dict[str, Any]
Block = dict[str, Any]

_EVENTS = 100_000
"""Events between two scrapes: enough for any guard, and whole numbers of bad ones at any target."""
_OUTAGE_SECONDS = 600.0


def of_pages(slos: Sequence[Slo], policy: Policy, timing: Timing, rules_file: str) -> Document:
    """Return the tests of minutes: the ratio is that of the raw series, pages fire, healthy traffic is quiet."""
    blocks = [block for slo in slos for block in (_outage(slo, policy, timing), *_quiet(slo, timing))]
    return _document(slos, timing.interval, rules_file, blocks)


def of_tickets(slos: Sequence[Slo], policy: Policy, timing: Timing, rules_file: str) -> Document:
    """Return the tests of tickets, whose windows are days: from what is recorded for them on, the sums and the ratios of hours."""
    blocks = [block for slo in slos if _tickets(slo) for block in _slow_burns(slo, policy, timing)]
    return _document(slos, min(_evaluation_interval(slo, timing) for slo in slos), rules_file, blocks)


def of_event_alerts(
    events: Sequence[EventAlert], timing: Timing, rules_file: str, recordings: Sequence[Recording] = (), recordings_file: str = ""
) -> Document:
    """Return the tests of event alerts, as their authors gave them; `recordings`: all there are, and the file of their rules."""
    blocks = []
    for event in events:
        labels = {"alertname": event.alert, "alertstate": "firing", **labels_of_event(event)}
        for fires, test in tests_of(event):
            block = _block(
                f"{event.alert} {'fires' if fires else 'is quiet'}: {test['what']}",
                test["interval"],
                [dict(one) for one in test["series"]],
            )
            if fires:
                sample = {"labels": _series("ALERTS", labels | dict(test["labels"])), "value": 1}
                query = f'ALERTS{{alertname="{event.alert}",alertstate="firing"}}'
                block["promql_expr_test"] = [{"expr": query, "eval_time": test["at"], "exp_samples": [sample]}]
            else:
                block["alert_rule_test"] = [_expected(event.alert, test["at"], [])]
            blocks.append(block)
    names, files = group_names(events), [rules_file]
    if needed([event.expr for event in events], recordings):
        names, files = [RECORDINGS, *names], [recordings_file, *files]
    # Half as often as they will be: faults last for minutes, and there are many tests.
    return _file(names, 2 * timing.interval, files, blocks)


# --- minutes ------------------------------------------------------------------------------------------------------------------


def _outage(slo: Slo, policy: Policy, timing: Timing) -> Block:
    """Everything is bad: all paging tiers fire, since a new service's windows are as short as its history; tickets wait."""
    at = _outage_end(slo, timing)
    scrapes = round(at / timing.scrape)
    if isinstance(slo.indicator, Slices):
        series = of_slices(slo, scrapes, timing.scrape, bad=True)
    else:
        series = of_events(slo, [PlantedStretch(scrapes, _EVENTS, _EVENTS)])
    firing = [tier for tier in tiers(slo) if tier.severity == "page"]
    alerts = [_firing(slo, tier, policy, timing, ratio=1.0) for tier in firing]
    block = _block(f"{slo.name}: everything is bad", duration(timing.scrape), series)
    block["alert_rule_test"] = [_expected(slo.alert, duration(at), alerts)]
    block["promql_expr_test"] = [_ratio_is(slo, 1.0, at, window) for window in windows_of(slo)]
    return block


def _outage_end(slo: Slo, timing: Timing) -> float:
    """Return the length of an outage that meets all conditions of its pages, in whole evaluations."""
    seconds = timing.scaled(_OUTAGE_SECONDS)
    if isinstance(slo.indicator, Slices):
        seconds += 2 * least_bad(slo, timing)
        if slo.indicator.gate is not None:
            seconds += timing.scaled(slo.indicator.gate.since_seconds)
    return -(-seconds // timing.interval) * timing.interval


def _quiet(slo: Slo, timing: Timing) -> list[Block]:
    """Return series that look like an outage and are not."""
    at = _outage_end(slo, timing)
    scrapes = round(at / timing.scrape)
    if isinstance(slo.indicator, Slices):
        series = of_slices(slo, scrapes, timing.scrape, bad=False)
        what = "an entity that is good"
        if slo.indicator.gate is not None and set(slo.indicator.by) - set(slo.by):
            series += of_slices(slo, scrapes, timing.scrape, bad=True, is_open=False, entity=2)
            what += ", and one that would be bad if it counted"
        return [_quiet_block(slo, what, series, timing, {at: 0.0})]
    bad = round(_EVENTS * slo.budget)
    allowed = [
        PlantedStretch(scrapes, _EVENTS, bad),
        PlantedStretch(scrapes, _EVENTS, bad, restart=True),
        PlantedStretch(scrapes, 0, 0),
    ]
    what = "as many bad events as are allowed, a restart of the counters, then no events at all"
    times = {2 * at: bad / _EVENTS, 3 * at: bad / _EVENTS}
    found = [_quiet_block(slo, what, of_events(slo, allowed), timing, times, window=HOUR)]
    if slo.least_bad_events >= 2:
        one = [PlantedStretch(scrapes, 0, 0), PlantedStretch(1, 1, 1), PlantedStretch(scrapes, 0, 0)]
        what = "a single event, which is bad"
        found.append(_quiet_block(slo, what, of_events(slo, one), timing, {at + 2 * timing.base: 1.0}))
    return found


def _quiet_block(
    slo: Slo, what: str, series: list[PlantedSeries], timing: Timing, ratios: Mapping[float, float], window: float = HOUR / 12
) -> Block:
    """Return a test that nothing fires; `ratios`: recorded ratio of bad events at each time."""
    block = _block(f"{slo.name}: {what}", duration(timing.scrape), series)
    block["alert_rule_test"] = [_expected(slo.alert, duration(at), []) for at in ratios]
    block["promql_expr_test"] = [_ratio_is(slo, ratio, at, window) for at, ratio in ratios.items()]
    return block


def _ratio_is(slo: Slo, ratio: float, at: float, window: float) -> Block:
    series = recorded(ERROR_RATIO, slo, window=duration(window))
    return {
        "expr": f"count(abs({series} - {number(ratio)}) < 1e-9)",
        "eval_time": duration(at),
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


# --- days ---------------------------------------------------------------------------------------------------------------------


def _tickets(slo: Slo) -> list[Tier]:
    return [tier for tier in tiers(slo) if tier.severity == "ticket"]


def _slow_burns(slo: Slo, policy: Policy, timing: Timing) -> list[Block]:
    """Return a burn that opens tickets without a page, and one just below all of them, both with history."""
    thresholds = {tier: tier.threshold(slo) for tier in tiers(slo)}
    highest = max(thresholds[tier] for tier in _tickets(slo))
    lowest = min(thresholds[tier] for tier in _tickets(slo))
    paged = min([1.0, *(value for tier, value in thresholds.items() if tier.severity == "page")])
    between, below = round((highest + paged) / 2 * _EVENTS), round(0.8 * lowest * _EVENTS)
    history = [HISTORY * timing.scaled(tier.long_seconds) for tier in _tickets(slo)]
    early, at = (_on_grid(seconds, _ticket_interval(timing)) for seconds in (min(history) / 2, max(history) + timing.scaled(HOUR)))
    alerts = [_firing(slo, tier, policy, timing, ratio=between / _EVENTS) for tier in _tickets(slo)]
    interval = duration(_planted_interval(slo, timing))
    burns = _block(f"{slo.name}: a slow burn", interval, _recorded(slo, between, at, timing))
    burns["alert_rule_test"] = [_expected(slo.alert, duration(early), []), _expected(slo.alert, duration(at), alerts)]
    allowed = _block(f"{slo.name}: a burn below all tiers", interval, _recorded(slo, below, at, timing))
    allowed["alert_rule_test"] = [_expected(slo.alert, duration(at), [])]
    return [burns, allowed]


def _recorded(slo: Slo, bad: float, until: float, timing: Timing) -> list[PlantedSeries]:
    labels = {"slo": slo.name, "area": slo.area, **labels_of(slo)}
    times = round(until / _planted_interval(slo, timing))
    of = MOMENTS if _reads_moments(slo) else SUMS
    planted = [(of.total, labels, _EVENTS), (of.bad, labels, bad)]
    if of is SUMS:  # else the rules make the ratios of short windows themselves
        planted += [(ERROR_RATIO, labels | {"window": duration(tier.short_seconds)}, bad / _EVENTS) for tier in _tickets(slo)]
    return [{"series": _series(name, of), "values": f"{number(value)}x{times}"} for name, of, value in planted]


def _reads_moments(slo: Slo) -> bool:
    """Return whether a ticket has a window of hours, as with short periods, which sums the recorded moments."""
    return any(tier.long_seconds <= RAW_LIMIT_SECONDS for tier in _tickets(slo))


def _evaluation_interval(slo: Slo, timing: Timing) -> float:
    """Return the seconds between evaluations: an alert with a window of hours is evaluated before what is left of the budget is
    recorded, and has to find what was recorded the time before.
    """
    return timing.slow_interval if _reads_moments(slo) else _ticket_interval(timing)


def _planted_interval(slo: Slo, timing: Timing) -> float:
    return timing.interval if _reads_moments(slo) else _ticket_interval(timing)


def _ticket_interval(timing: Timing) -> float:
    """Return the seconds between evaluations in tests of days: longer than in practice, for a steady burn."""
    return 3 * timing.slow_interval


def _on_grid(seconds: float, interval: float) -> float:
    return round(seconds / interval) * interval


# --- promtool's form ----------------------------------------------------------------------------------------------------------


def _firing(slo: Slo, tier: Tier, policy: Policy, timing: Timing, ratio: float) -> Document:
    labels = labels_of(slo)
    windows = {"long": duration(tier.long_seconds), "short": duration(tier.short_seconds)}
    own = {"severity": tier.severity, "area": slo.area, "slo": slo.name, "owner": slo.owner, "window": windows["long"]}
    said = filled_in(slo, timing, labels, ratio, left=1 - ratio / slo.budget)
    return {"exp_labels": own | windows | labels, "exp_annotations": annotations_of(slo, tier, policy, timing, said)}


def _expected(alert: str, at: str, alerts: list[Document]) -> Block:
    return {"eval_time": at, "alertname": alert, "exp_alerts": alerts}


def _block(name: str, interval: str, series: list[PlantedSeries]) -> Block:
    return {"name": name, "interval": interval, "input_series": series}


def _document(slos: Sequence[Slo], interval: float, rules_file: str, blocks: list[Block]) -> Document:
    return _file([f"{slo.name}{suffix}" for slo in slos for suffix in SUFFIXES], interval, [rules_file], blocks)


def _file(groups: list[str], interval: float, rules_files: list[str], blocks: list[Block]) -> Document:
    # The order is that in which Prometheus would have written what the next group reads.
    return {"rule_files": rules_files, "evaluation_interval": duration(interval), "group_eval_order": groups, "tests": blocks}


def _series(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={quoted(value)}' for label, value in labels.items())}}}"
