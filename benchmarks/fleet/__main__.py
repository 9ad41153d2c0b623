"""The gate on what a fleet costs (docs/guides/scale.md).

A simulator serves the pages of many agents; a real Prometheus with all rules scrapes them and writes them on into a real
VictoriaMetrics. Then both are asked for all rules and panels, and the figures are compared with budgets.yaml beside this file.
The exit status is 1 when a budget is exceeded, or an answer differs without a reason in differences.yaml beside this file.

    python -m benchmarks.fleet                                               # 1,250 nodes, a quarter of an hour, 12 GiB
    python -m benchmarks.fleet --nodes 50 --minutes 5 --scrape-seconds 15    # a look
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet import budgets, figures, report, servers
from benchmarks.fleet.comparison import Compared, compare
from benchmarks.fleet.expressions import of_rules, panels
from benchmarks.fleet.schedule import CYCLE_SCRAPES
from benchmarks.fleet.simulator import fleet_of
from benchmarks.server_process import ServerProcess, wait_for

STEP_SECONDS = 30.0
QUIET_SECONDS = 150.0
MOST_CYCLES = 2
COMPARABLE_SECONDS = 15.0
"""Rules take rates over a minute; from fewer than four scrapes the two servers compute different rates."""


@dataclass(frozen=True, slots=True)
class Options:
    """How large a run is, and how long."""

    nodes: int = 1250
    minutes: float = 8.0
    scrape_seconds: float = 30.0
    rule_seconds: float = 30.0

    @property
    def seconds(self) -> float:
        return self.minutes * 60.0

    @property
    def cycles(self) -> int:
        """After how many cycles the fleet is quiet: so long before the end that no short window reaches back to them."""
        return min(max(int((self.seconds - QUIET_SECONDS) / (CYCLE_SCRAPES * self.scrape_seconds)), 1), MOST_CYCLES)


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave; compared: None without VictoriaMetrics, or where scrapes are too seldom for it."""

    figures: figures.Figures
    panels: dict[str, float]
    compared: Compared | None
    exceeded: list[str]

    @property
    def failures(self) -> list[str]:
        """A line for each reason to fail."""
        different = self.compared.unexplained if self.compared else []
        return [*self.exceeded, *(f"{one.expression.where}: {one.what}" for one in different)]


@contextlib.contextmanager
def ending(server: ServerProcess | None) -> Iterator[None]:
    try:
        yield
    finally:
        if server is not None:
            server.end()


def run(options: Options, folder: Path) -> Result:
    """Run the fleet and measure it; what the servers print and keep goes into the folder."""
    agents = servers.simulator(folder, options.nodes, options.scrape_seconds, options.cycles)
    with ending(agents), contextlib.ExitStack() as stack:
        store = servers.victoria_metrics(folder)
        stack.enter_context(ending(store))
        prometheus = servers.prometheus(
            folder, agents, store, scrape_seconds=options.scrape_seconds, rule_seconds=options.rule_seconds
        )
        stack.enter_context(ending(prometheus))
        return _measured(options, folder, agents, prometheus, store)


def _measured(
    options: Options, folder: Path, agents: ServerProcess, prometheus: ServerProcess, store: ServerProcess | None
) -> Result:
    fleet, seconds = fleet_of(options.nodes), options.seconds
    scrapes = max(int(seconds / options.scrape_seconds), 2)
    watched = f'count_over_time(up{{job="{servers.WATCH}"}}[1d])'
    wait_for(lambda: prometheus.value(watched) >= scrapes, seconds=2.0 * seconds + 120.0)
    at = time.time()
    if store is not None:
        sent = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds"
        wait_for(lambda: prometheus.metric(sent) > at, seconds=4.0 * options.scrape_seconds + 60.0)
    found = {
        **figures.of_pages(prometheus, fleet, at),
        **figures.of_wire(agents, fleet),
        **figures.of_prometheus(prometheus, folder, fleet, seconds),
        **({} if store is None else figures.of_store(prometheus, store, folder)),
        "simulator_mib": agents.resident_mib(),
    }
    agents.end()
    # Then neither scrapes nor rules take processor time from what is asked.
    up = f'count(up{{job="{servers.AGENTS}"}} == 1) or vector(0)'
    wait_for(lambda: prometheus.value(up) == 0.0, seconds=4.0 * options.scrape_seconds + 60.0)
    return _asked(options, prometheus, store, found, at)


def _asked(options: Options, prometheus: ServerProcess, store: ServerProcess | None, found: figures.Figures, at: float) -> Result:
    asked = panels(fleet_of(options.nodes), options.seconds)
    taken = dict(figures.of_panels(prometheus, asked, options.seconds, STEP_SECONDS, at))
    found |= {**figures.of_rules(prometheus, at), "dearest_panel_seconds": max(taken.values())}
    expressions = [*of_rules(), *(one for panel in asked for one in panel.expressions)]
    is_compared = store is not None and options.scrape_seconds <= COMPARABLE_SECONDS
    compared = compare(prometheus, store, expressions, at) if store is not None and is_compared else None
    return Result(found, taken, compared, budgets.exceeded(budgets.load(), found, options.nodes))


def main() -> None:
    plain = Options()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=plain.nodes)
    parser.add_argument("--minutes", type=float, default=plain.minutes, help="of scrapes, before anything is asked")
    parser.add_argument("--scrape-seconds", type=float, default=plain.scrape_seconds)
    parser.add_argument("--rule-seconds", type=float, default=plain.rule_seconds, help="between two evaluations of each group")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    options = Options(chosen.nodes, chosen.minutes, chosen.scrape_seconds, chosen.rule_seconds)
    if options.seconds < QUIET_SECONDS + CYCLE_SCRAPES * options.scrape_seconds:
        parser.error("the run is too short: it needs eight scrapes in which something happens, and two and a half minutes without")
    with tempfile.TemporaryDirectory() as folder:
        result = run(options, Path(folder))
    if chosen.json:
        chosen.json.write_text(json.dumps(result.figures, indent=1))
    print(report.text(result.figures, result.panels, result.compared))
    for line in result.failures:
        print(f"over budget or different: {line}", file=sys.stderr)
    sys.exit(1 if result.failures else 0)


if __name__ == "__main__":
    main()
