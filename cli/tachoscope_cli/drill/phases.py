"""The course of a fire drill whose servers run: all is well, the fault, the alert, the fault's end, the alert's end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tachoscope_alerts.compile import alertmanager
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.sli_expressions import BAD, TOTAL, error_ratio, recorded
from tachoscope_alerts.spec.burn_rate_windows import Timing, duration, tiers
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Severity, Slo
from tachoscope_cli.drill import expected_times as drill_times
from tachoscope_cli.drill.checks import Check, check_time, of_message, of_route
from tachoscope_cli.drill.processes import wait_until
from tachoscope_cli.drill.prometheus_alertmanager import samples
from tachoscope_cli.drill.walk import RunbookStep, Walk
from tachoscope_cli.drill.webhook_receiver import Arrival, Receiver
from tachoscope_cli.drill.workloads import DrillFault

AGENT_JOB, WATCH_JOB = "tachoscope", "tachoscope-watch"
"""The jobs of Prometheus's that scrape agents and the watch, as in docs/agent/agent.md and docs/guides/watch.md."""
_WELL_SECONDS = 120.0
_TOLD_SECONDS = 1.5
"""A notification's way: Alertmanager looks at its groups about once a second, and tells over HTTP."""
_PATIENCE_SECONDS = 90.0
_LOOK_SECONDS = 0.1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DrillPhases:
    """What a course goes through.

    Attributes:
        alert: that has to fire. source: the objective or event that it is of. history: seconds without a fault before it.
        seen: the most seconds that it takes until the metric says what happens.
        holds: of an event, the seconds, not scaled, after which its expression sees the fault; lasts: for which it goes on to.
        labels: of the alert, by which it is known among others of its name. up: the job of Prometheus's that has to be up before.
        timing: of the rules. telling: of Alertmanager.
        say: is told what is waited for. logs: of the processes, by name.
        walk: makes a walk through the runbook of the alert that came; None: it is not walked through.
    """

    alert: str
    source: Slo | EventAlert
    fault: str
    history: float
    seen: float
    holds: float
    lasts: float
    labels: Mapping[str, str]
    up: str
    timing: Timing
    telling: Timing
    policy: Policy
    receiver: Receiver
    prometheus_url: str
    say: Callable[[str], None]
    logs: Mapping[str, Path]
    walk: Callable[[Arrival], Walk] | None = None


def run(course: DrillPhases, fault: DrillFault) -> tuple[list[Check], list[RunbookStep]]:
    """Cause the fault and end it; return what was found, and the steps of the runbook.

    Raises:
        TachoscopeError: the workload was not well before the fault.
    """
    course.say(f"waiting for {course.history:.0f} s without a fault")
    wait_until(lambda: _well(course), _WELL_SECONDS, "the workload runs and is well", course.logs)
    early = [one for one in _came(course) if one.status == "firing"]
    found = [Check("quiet before the fault", not early, early[0].annotations.get("summary", "") if early else "yes")]
    course.say(f"{course.fault}; waiting for {course.alert}")
    began = time.time()
    course_began = time.monotonic()
    fault.cause()
    first = _within(_PATIENCE_SECONDS, lambda: next((one for one in _came(course) if one.starts_at >= began), None))
    if first is None:
        return [*found, Check("fires", passed=False, found=f"not within {_PATIENCE_SECONDS:.0f} s")], []
    # Until the rates see nothing but the fault: then they say how bad it is.
    time.sleep(max(course_began + course.timing.base + 2 * course.timing.scrape - time.monotonic(), 0.0))
    bad_ratio = _bad_ratio(course)
    walk = course.walk(first) if course.walk is not None else None
    if walk is not None:
        walk.run_diagnosis()
        walk.end()
    course.say(f"the fault ends; waiting for the end of {course.alert}")
    fault.end()
    ended = time.time()
    last = _within(_PATIENCE_SECONDS, lambda: _all_ended(_came(course)))
    severity: Severity = "page" if first.labels.get("severity") == "page" else "ticket"
    times, (wait, interval, _) = _times(course, severity, bad_ratio), alertmanager.waits(severity, course.telling)
    if isinstance(course.source, Slo):
        found.append(Check("events that were bad", bad_ratio > 0, f"{bad_ratio:.0%} under the fault"))
    if walk is not None:
        walk.after()
    return [
        *found,
        check_time("fires", first.starts_at - began, times.earliest, times.latest),
        check_time("notification arrives", first.time - began, times.earliest, times.latest + wait + _TOLD_SECONDS),
        of_route(first, course.policy),
        *of_message(first, course.policy),
        check_time("resolved notification arrives", last and last - ended, 0.0, times.clears + interval + _TOLD_SECONDS),
    ], walk.steps if walk is not None else []


def others(course: DrillPhases) -> dict[str, str]:
    """Return the alerts that came beside the one that was expected: their names, and what they said first."""
    said: dict[str, str] = {}
    for one in course.receiver.arrivals():
        if one.name not in (course.alert, alertmanager.WATCHDOG):
            said.setdefault(one.name, one.annotations.get("summary", ""))
    return dict(sorted(said.items()))


def _well(course: DrillPhases) -> bool | None:
    """Return whether there was no fault for long enough; None: not yet."""
    window, needed = duration(course.history), 0.9 * course.history
    if isinstance(course.source, EventAlert):
        up = f'up{{job="{course.up}"}}'
        query = f"count_over_time({up}[{window}]) * {course.timing.scrape:g} >= {needed:g} and min_over_time({up}[{window}]) == 1"
    else:
        slo = course.source
        enough = f"count_over_time({recorded(TOTAL, slo)}[{window}]) * {course.timing.interval:g} >= {needed:g}"
        query = f"{enough} and {error_ratio(slo, course.history)} < {min(tier.threshold(slo) for tier in tiers(slo)) / 2:g}"
    return True if samples(course.prometheus_url, query) else None


def _came(course: DrillPhases) -> list[Arrival]:
    named = [one for one in course.receiver.arrivals() if one.name == course.alert]
    return [one for one in named if course.labels.items() <= one.labels.items()]


def _all_ended(came: Iterable[Arrival]) -> float | None:
    """Return when the last alert ended; None while one has not."""
    last = {frozenset(one.labels.items()): one for one in came}
    return max(one.time for one in last.values()) if all(one.status == "resolved" for one in last.values()) else None


def _bad_ratio(course: DrillPhases) -> float:
    """Return the current ratio of bad events; 0 without a ratio."""
    if isinstance(course.source, EventAlert):
        return 0.0
    bad, total = (recorded(name, course.source) for name in (BAD, TOTAL))
    return max((value for _, value in samples(course.prometheus_url, f"sum({bad}) / sum({total})")), default=0.0)


def _times(course: DrillPhases, severity: Severity, bad_ratio: float) -> drill_times.Times:
    if isinstance(course.source, EventAlert):
        return drill_times.of_event(course.source, course.timing, holds=course.holds, lasts=course.lasts, seen=course.seen)
    came = [one for one in _came(course) if one.labels.get("severity") == severity]
    longs = {one.labels.get("long", "") for one in came}
    fired = [tier for tier in tiers(course.source) if duration(tier.long_seconds) in longs]
    return drill_times.of_objective(course.source, severity, fired, course.timing, bad_ratio=bad_ratio, seen=course.seen)


def _within(seconds: float, found: Callable[[], _T | None]) -> _T | None:
    """Return what is found within so many seconds, else None."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if (result := found()) is not None:
                return result
        time.sleep(_LOOK_SECONDS)
    return None
