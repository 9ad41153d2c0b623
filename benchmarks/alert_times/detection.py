"""How long outages last before promtool's Prometheus fires, and alerts after their end, beside what theory says of both.

Full history of no bad events, then an outage, which ends when the alert is due. The times depend on target, period, whether it
pages, and whether events or time are counted: objectives that share these share a line. Pages are evaluated every 30 s from raw
counters on, tickets every 4 minutes from recorded events on, as the rules' groups are.

    python -m benchmarks.alert_times.detection            # print
    python -m benchmarks.alert_times.detection --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tachoscope_alerts.compile.detection_time import NEVER, OUTAGES, SEVERITIES, Detection, Outage, detection, in_words
from tachoscope_alerts.compile.planted_series import PlantedSeries, PlantedStretch, of_events
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.compile.sli_expressions import BAD, TOTAL
from tachoscope_alerts.compile.yaml_writer import to_yaml
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing, duration, tiers
from tachoscope_alerts.spec.slo import Ratio, Selector, Severity, Slices, Slo

ALERTS = Path(__file__).parents[2] / "alerts"
_EVENTS = 100_000
NEAR = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Nowhere:
    """Links of rules that nobody is sent to."""

    runbook_base: str = "https://example.org"
    dashboard_base: str = "https://example.org"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """Outages of one objective, told by alerts of one severity."""

    slo: Slo
    severity: Severity

    @property
    def interval(self) -> float:
        """Seconds between evaluations."""
        return Timing().interval if self.severity == "page" else Timing().slow_interval

    @property
    def history(self) -> float:
        """Seconds before the outages: the longest window."""
        return max(tier.long_seconds for tier in tiers(self.slo) if tier.severity == self.severity)

    def computed(self, outage: Outage) -> Detection:
        """Return what theory says."""
        return detection(self.slo, self.severity, outage.bad(self.slo), Timing())

    def lasts(self, outage: Outage) -> float:
        """Return the seconds of an outage: until it is told at the latest; where it never is, the longest window."""
        expected = self.computed(outage)
        return self.history if expected.fires == NEVER else self.on_grid(expected.fires + self.interval / 2)

    def end(self) -> float:
        """Return the second at which all is over."""
        clears = [found.clears for found in map(self.computed, OUTAGES) if found.clears != NEVER]
        return self.on_grid(self.history + max(map(self.lasts, OUTAGES)) + max(clears, default=0.0) + 3 * self.interval)

    def on_grid(self, seconds: float) -> float:
        """Return the first evaluation at or after a second."""
        return math.ceil(seconds / self.interval) * self.interval


def measured(cases: Iterable[Case]) -> dict[tuple[str, Severity, str], tuple[float, float]]:
    """Return seconds from begin to alert and from end to clear by objective, severity and outage; none of what never fired."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            if not any(tier.severity == case.severity for tier in tiers(case.slo)):
                continue
            (Path(folder) / "rules.yaml").write_text(to_yaml({"groups": _groups(case)}))
            (Path(folder) / "test.yaml").write_text(to_yaml(_test(case)))
            command = ["promtool", "test", "rules", "test.yaml"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            first, last = _times(done.stdout + done.stderr)
            for outage in OUTAGES:
                if outage.title in first:
                    begin = case.history
                    times = first[outage.title] - begin, last[outage.title] + case.interval - begin - case.lasts(outage)
                    found[case.slo.name, case.severity, outage.title] = times
    return found


def _groups(case: Case) -> list[dict[str, Any]]:
    """Return the rules that bear on a severity; the recorded events are given to those of tickets, and of time."""
    given = _is_given(case)
    rules = groups(case.slo, Nowhere(), Timing())[: 1 if case.severity == "page" else None]
    kept = [
        {**group, "rules": [rule for rule in group["rules"] if not (given and rule.get("record") in {TOTAL, BAD})]}
        for group in rules
    ]
    return [group for group in kept if group["rules"]]


def _is_given(case: Case) -> bool:
    return case.severity == "ticket" or isinstance(case.slo.indicator, Slices)


def _test(case: Case) -> dict[str, Any]:
    interval = case.interval if _is_given(case) else Timing().scrape
    series = [one for outage in OUTAGES for one in _series(case, outage, interval)]
    end, step = case.end(), duration(case.interval)
    firing = f'ALERTS{{alertname="{case.slo.alert}",alertstate="firing",severity="{case.severity}"}}'
    # Nothing is expected, so that promtool prints what there is.
    asked = [
        {"expr": f"{side} by (outage) ({side}_over_time(timestamp({firing})[{duration(end)}:{step}]))", "eval_time": duration(end)}
        for side in ("min", "max")
    ]
    block = {"interval": duration(interval), "input_series": series, "promql_expr_test": asked}
    names = [group["name"] for group in _groups(case)]
    return {"rule_files": ["rules.yaml"], "evaluation_interval": step, "group_eval_order": names, "tests": [block]}


def _series(case: Case, outage: Outage, interval: float) -> list[PlantedSeries]:
    """Return what there is of an objective with one outage: counters, or the recorded events."""
    bad = round(outage.bad(case.slo) * _EVENTS)
    spans = [(case.history, 0), (case.lasts(outage), bad), (case.end() - case.history - case.lasts(outage), 0)]
    labels = {"outage": outage.title}
    if not _is_given(case):
        return of_events(case.slo, [PlantedStretch(round(seconds / interval), _EVENTS, part) for seconds, part in spans], labels)
    common = f'slo="{case.slo.name}",area="{case.slo.area}",outage="{outage.title}"'
    values = " ".join(f"{part}x{round(seconds / interval) - 1}" for seconds, part in spans)
    return [
        {"series": f"{TOTAL}{{{common}}}", "values": f"{_EVENTS}x{round(case.end() / interval)}"},
        {"series": f"{BAD}{{{common}}}", "values": f"0 {values}"},
    ]


def _times(printed: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the first and the last second of each outage's alert."""
    found: dict[str, dict[str, float]] = {"min": {}, "max": {}}
    for side, got in re.findall(r'expr: "(min|max) by .*?got:\s*(.*?)(?=expr:|\Z)', printed, flags=re.DOTALL):
        found[side] = {title: float(value) for title, value in re.findall(r'\{outage="([^"]+)"\} ([0-9.E+]+)', got)}
    return found["min"], found["max"]


def stand_ins(slos: Iterable[Slo]) -> dict[str, Slo]:
    """Return an objective for each set of those that share their times, by their names."""
    shared: dict[tuple[float, float, bool, bool], list[Slo]] = {}
    for slo in slos:
        shared.setdefault((slo.target, slo.period_days, slo.pages, isinstance(slo.indicator, Slices)), []).append(slo)
    return {", ".join(f"`{slo.name}`" for slo in of_kind): stand_in(of_kind[0]) for of_kind in shared.values()}


def stand_in(slo: Slo) -> Slo:
    """Return an objective with the same times that has one budget for each outage."""
    events = Selector("tachoscope_requests_total")
    counted = Ratio(total=events, bad=Selector(events.metric, labels={"outcome": ("server_error",)}))
    indicator = slo.indicator if isinstance(slo.indicator, Slices) else counted
    return dataclasses.replace(slo, indicator=indicator, by=("outage",), least_bad_events=0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """One time, in seconds: what theory says, and what was measured."""

    objectives: str
    outage: str
    what: str
    computed: float
    measured: float
    interval: float

    @property
    def met(self) -> bool:
        """Whether the two differ by at most a tenth and one evaluation, or both say never."""
        if NEVER in (self.computed, self.measured):
            return self.computed == self.measured
        return abs(self.measured - self.computed) <= max(NEAR * self.computed, self.interval)


def compared(names: Mapping[str, Slo]) -> list[Compared]:
    """Return each time from begin to alert and from end to clear, by objectives that share them."""
    cases = {(title, severity): Case(slo, severity) for title, slo in names.items() for severity in SEVERITIES}
    seen = measured(cases.values())
    found = []
    for (title, severity), case in cases.items():
        for outage in OUTAGES:
            expected = case.computed(outage)
            fires, clears = seen.get((case.slo.name, severity, outage.title), (NEVER, NEVER))
            found.append(Compared(title, outage.title, severity, expected.fires, fires, case.interval))
            found.append(Compared(title, outage.title, f"{severity} clears", expected.clears, clears, case.interval))
    return found


def tables(found: Iterable[Compared]) -> str:
    """Return how many times agree, and those that do not."""
    found = list(found)
    counts = ["| what | computed | as computed | never, computed | never, measured too |", "|---|---|---|---|---|"]
    for what in dict.fromkeys(one.what for one in found):
        due = [one for one in found if one.what == what and one.computed != NEVER]
        never = [one for one in found if one.what == what and one.computed == NEVER]
        numbers = (len(due), sum(one.met for one in due), len(never), sum(one.met for one in never))
        counts.append(f"| {what} | {' | '.join(map(str, numbers))} |")
    off = ["| not as computed | outage | what | computed | measured |", "|---|---|---|---|---|"]
    for one in found:
        if not one.met:
            times = f"{in_words(one.computed)} | {in_words(one.measured)}"
            off.append(f"| {one.objectives} | {one.outage} | {one.what} | {times} |")
    return "\n".join([*counts, "", *off])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    text = tables(compared(stand_ins(slo_files.load([ALERTS / "slos"]))))
    print(text)
    if options.write:
        from benchmarks.sections import write_section

        write_section("detection_times", text, "python -m benchmarks.alert_times.detection --write")


if __name__ == "__main__":
    main()
