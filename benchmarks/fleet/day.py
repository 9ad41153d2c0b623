"""Whether the objectives have a value at each evaluation of a day in which nodes restart, are away and join, and jobs start again.

A day of scrapes of a small fleet is written into a real Prometheus in minutes, with markers where a series ends, as a scrape writes
them. Then the rules of each objective are evaluated at each evaluation of the day, in their order, and what they record is written
into the same server. Last it is asked for the recorded events. The exit status is 1 when an objective lacks a value.

    python -m benchmarks.fleet.day                    # 25 nodes, 24 hours, some two minutes
    python -m benchmarks.fleet.day --hours 4          # a look
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from benchmarks.fleet.schedule import CYCLE_SCRAPES, GROUP, Schedule
from benchmarks.fleet.simulator import fleet_of
from benchmarks.fleet_series import Labels, Planted, names_in, series_of
from benchmarks.remote_write import Floats, Sender, encoded
from benchmarks.slo_rules import ALERTS, Server, running

from tachoscope_alerts.compile.rules import Rule, groups
from tachoscope_alerts.compile.sli_expressions import BAD, PARTS, TOTAL, recorded
from tachoscope_alerts.spec import files, policy
from tachoscope_alerts.spec.burn_rate_windows import HOUR, Timing, duration
from tachoscope_alerts.spec.slo import Slices, Slo
from tachoscope_alerts.spec.slo_files import load

CYCLE_SECONDS = 2 * HOUR
"""In which each of the unusual nodes of the schedule does what it does once."""
STALE = np.array([0x7FF0000000000002], dtype=np.uint64).view(np.float64)[0]
"""What Prometheus writes where a series ends: https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness"""
MOST_POINTS = 5_000


def write_day(sender: Sender, schedule: Schedule, names: list[str], timing: Timing, hours: float) -> None:
    """Write what the scrapes of all nodes find from the begin of the schedule on."""
    for node in range(schedule.fleet.nodes):
        series = [one for name in names for one in series_of(name, schedule.fleet, schedule.begin, range(node, node + 1))]
        times = schedule.begin + np.arange(node % timing.scrape, hours * HOUR, timing.scrape)
        there = np.array([schedule.joined(node, at) and not schedule.away(node, at) for at in times.tolist()])
        lives = [schedule.lives(node, at) for at in times.tolist()]
        up = Planted({**schedule.fleet.node_labels(node), "__name__": "up"}, 1.0, is_gauge=True)
        _add(sender, up.labels, times, np.where(there, 1.0, 0.0))
        runs = np.array([one.run for one in lives])
        for one in series:
            job = one.labels.get("training_job")
            since = np.array([life.job if job else life.node for life in lives])
            found = np.full(times.size, one.value) if one.is_gauge else np.floor(one.value * (times - since))
            for run, labels in _of_runs(one.labels, runs):
                _add(sender, labels, times, _with_ends(found, there & (runs == run if job else True)))
    sender.flush()


def _of_runs(labels: Labels, runs: Floats) -> Iterator[tuple[int, Labels]]:
    """Yield the labels of a series in each run of its job, which has a name of its own."""
    for run in np.unique(runs).tolist() if "training_job" in labels else [0]:
        yield run, {**labels, "training_job": f"{labels['training_job']}-{run}"} if run else labels


def _with_ends(found: Floats, there: Floats) -> Floats:
    """Return values where the series is there, a marker after each end, and nan where nothing is written."""
    ends = ~there & np.concatenate([[False], there[:-1]])
    return np.where(there, found, np.where(ends, STALE, np.nan))


def _add(sender: Sender, labels: Labels, times: Floats, values: Floats) -> None:
    bits = values.view(np.uint64)
    written = ~np.isnan(values) | (bits == np.float64(STALE).view(np.uint64))
    if written.any():
        sender.add(labels, encoded(times[written], values[None, written])[0])


def rules_of_events(slo: Slo, timing: Timing) -> list[Rule]:
    """Return the rules of an objective that record its events of the moment and what these are made of, in their order."""
    first, *_ = groups(slo, policy.load(files.path_of("policy.yaml")), timing)
    return [rule for rule in first["rules"] if rule.get("record") in {*PARTS, TOTAL, BAD}]


def record(server: Server, sender: Sender, rules: Sequence[Rule], times: Floats) -> None:
    """Write what rules record at some times. Each reads what those before it recorded, as in a group of a server."""
    for rule in rules:
        for labels, found in _evaluated(server, rule["expr"], times):
            there = ~np.isnan(found)
            _add(sender, {**labels, **rule["labels"], "__name__": rule["record"]}, times, _with_ends(found, there))
        sender.flush()


def _evaluated(server: Server, expression: str, times: Floats) -> list[tuple[Labels, Floats]]:
    """Return the values of an expression at evenly spaced times, by labels; nan where it has none."""
    found: dict[tuple[tuple[str, str], ...], Floats] = {}
    step = float(times[1] - times[0])
    for first in range(0, times.size, MOST_POINTS):
        part = times[first : first + MOST_POINTS]
        span = {"start": f"{part[0]:.0f}", "end": f"{part[-1]:.0f}", "step": f"{step:g}"}
        for row in server.ask("query_range", query=expression, **span)["result"]:
            values = found.setdefault((*sorted(row["metric"].items()),), np.full(times.size, np.nan))
            asked_at, answers = np.array(row["values"], dtype=np.float64).T
            values[np.rint((asked_at - times[0]) / step).astype(int)] = answers
    return [(dict(labels), values) for labels, values in found.items()]


def gaps(server: Server, slo: Slo, times: Floats) -> list[float]:
    """Return the evaluations at which an objective has no recorded events, total or bad, in Unix seconds."""
    there = np.zeros(times.size, dtype=bool)
    for _, found in _evaluated(server, f"count({recorded(TOTAL, slo)}) and count({recorded(BAD, slo)})", times):
        there |= ~np.isnan(found)
    missed: list[float] = times[~there].tolist()
    return missed


def _warm(slo: Slo, timing: Timing) -> float:
    """Return the seconds of history that the first value needs: a rate's window, and for how long a gate must have been open."""
    gate = slo.indicator.gate if isinstance(slo.indicator, Slices) else None
    whole = (2 * timing.base + timing.scrape + (gate.since_seconds if gate is not None else 0.0)) / timing.interval
    return math.ceil(whole) * timing.interval


def missing(schedule: Schedule, slos: Sequence[Slo], timing: Timing, hours: float, folder: Path) -> dict[str, list[float]]:
    """Return the evaluations in hours of a schedule, from its begin on, at which each objective lacks a value, in Unix seconds."""
    rules = {slo.name: rules_of_events(slo, timing) for slo in slos}
    times = np.arange(schedule.begin, schedule.begin + hours * HOUR, timing.interval)
    with running(folder) as server:
        sender = Sender(server.port)
        write_day(sender, schedule, names_in(rule["expr"] for own in rules.values() for rule in own), timing, hours)
        print(f"{sender.series:,} series, {sender.samples / 1e6:.1f} million samples of {hours:g} hours", file=sys.stderr)
        for own in rules.values():
            record(server, sender, own, times)
        return {slo.name: gaps(server, slo, times[times >= schedule.begin + _warm(slo, timing)]) for slo in slos}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=GROUP)
    parser.add_argument("--hours", type=float, default=24.0)
    options = parser.parse_args()
    timing, seconds = Timing(), options.hours * HOUR
    begin = time.time() // timing.interval * timing.interval - seconds
    schedule = Schedule(fleet_of(options.nodes), begin, CYCLE_SECONDS / CYCLE_SCRAPES, cycles=math.ceil(seconds / CYCLE_SECONDS))
    with tempfile.TemporaryDirectory() as folder:
        found = missing(schedule, load([ALERTS / "slos"]), timing, options.hours, Path(folder))
    for name, times in found.items():
        first = f", first {duration(times[0] - begin)} after the begin" if times else ""
        print(f"{name}: {len(times)} evaluations without a value{first}")
    sys.exit(1 if any(found.values()) else 0)


if __name__ == "__main__":
    main()
