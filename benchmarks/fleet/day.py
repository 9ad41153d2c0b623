"""Whether the objectives have a value at each evaluation of a day in which nodes restart, are away and join, and jobs start again.

A day of scrapes of a small fleet is written into a real Prometheus in minutes, with markers where a series ends, as a scrape writes
them. Then Prometheus is asked for the total events of each objective at each evaluation of the day, from raw series. The exit
status is 1 when an objective lacks one.

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
from benchmarks.server_process import ServerProcess
from benchmarks.slo_rules import ALERTS, running

from tachoscope_alerts.compile.sli_expressions import parts, total_events
from tachoscope_alerts.spec.burn_rate_windows import HOUR, Timing, duration
from tachoscope_alerts.spec.openslo import load
from tachoscope_alerts.spec.slo import Slices, Slo

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


def gaps(server: ServerProcess, slo: Slo, timing: Timing, begin: float, end: float) -> list[float]:
    """Return the evaluations of a time at which an objective has no total events, in Unix seconds."""
    expected, found = np.arange(begin, end, timing.interval), set[float]()
    for first in range(0, expected.size, MOST_POINTS):
        part = expected[first : first + MOST_POINTS]
        query = f"count({total_events(slo, timing)})"
        asked = {"start": f"{part[0]:.0f}", "end": f"{part[-1]:.0f}", "step": f"{timing.interval:g}"}
        found |= {float(at) for row in server.ask("query_range", query=query, **asked)["result"] for at, _ in row["values"]}
    return [at for at in expected.tolist() if at not in found]


def _warm(slo: Slo, timing: Timing) -> float:
    """Return the seconds of history that the first value needs: a rate's window, and for how long a gate must have been open."""
    gate = slo.indicator.gate if isinstance(slo.indicator, Slices) else None
    whole = (2 * timing.base + timing.scrape + (gate.since_seconds if gate is not None else 0.0)) / timing.interval
    return math.ceil(whole) * timing.interval


def missing(schedule: Schedule, slos: Sequence[Slo], timing: Timing, hours: float, folder: Path) -> dict[str, list[float]]:
    """Return the evaluations in hours of a schedule, from its begin on, at which each objective lacks a value, in Unix seconds."""
    names = names_in([expression for slo in slos for expression in (*parts(slo, timing).values(), total_events(slo, timing))])
    with running(folder) as server:
        sender = Sender(server.port)
        write_day(sender, schedule, names, timing, hours)
        print(f"{sender.series:,} series, {sender.samples / 1e6:.1f} million samples of {hours:g} hours", file=sys.stderr)
        end = schedule.begin + hours * HOUR
        return {slo.name: gaps(server, slo, timing, schedule.begin + _warm(slo, timing), end) for slo in slos}


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
