"""What the rules of all objectives and alerts cost one Prometheus that watches 1,250 nodes with 10,000 GPUs, 200 jobs, 20 services.

The series that the rules read, with the label sets that the agent gives them, a quarter of an hour at 15 s (of names with fewer
than 20,000 series also six hours before, at a minute), and the recorded events for as long as rules read them, are written into a
real Prometheus by remote write: as OpenMetrics for promtool they are 20 GB of text. Its blocks are made so long that all stays
in its head. What is written reaches ten minutes into the future, so that nothing is written while rules are evaluated. Groups with
longer intervals are evaluated each minute, which costs the same each time.

    python -m benchmarks.slo_rules                           # ten minutes
    python -m benchmarks.slo_rules --nodes 50 --days 1       # a look
    python -m benchmarks.slo_rules --write                   # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from benchmarks.fleet_series import Fleet, Planted, names_in, series_of, values
from benchmarks.remote_write import Sender, encoded
from benchmarks.sections import write_section
from benchmarks.server_process import ServerProcess, free_port

from tachoscope_alerts.compile.sli_expressions import TOTAL, bad_events, error_ratio, total_events
from tachoscope_alerts.spec.burn_rate_windows import DAY, Timing, seconds_of
from tachoscope_alerts.spec.slo import Slices, Slo
from tachoscope_alerts.spec.slo_files import load
from tachoscope_core import yaml_text
from tachoscope_core.metrics.metric import IDENTITY

ALERTS = Path(__file__).parent.parent / "alerts"

CORES = 2
BAR_SECONDS = 1.0
HISTORY_SECONDS, AHEAD_SECONDS, SCRAPE_SECONDS = 900.0, 590.0, 15.0
OLDER_SECONDS, OLDER_STEP, MOST_OLDER = 6 * 3600.0 + 900.0, 60.0, 20_000
BATCH = 5000
FAST_EVALUATIONS, SLOW_EVALUATIONS = 5, 3
WINDOW_SECONDS = 300.0
"""Over which a rule that reads raw series is compared with one that reads recorded ones."""


@dataclass
class Group:
    """A rule group: how long its evaluations took, in seconds, and what each rule took in the last one."""

    interval: float = 0.0
    seconds: list[float] = field(default_factory=list)
    rules: dict[str, float] = field(default_factory=dict)
    last: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Server(ServerProcess):
    """A real Prometheus on two cores, without rules at first."""

    def __init__(self, folder: Path) -> None:
        port, self._rules = free_port(), folder / "rules"
        self._rules.mkdir()
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump({"global": {"evaluation_interval": "30s"}, "rule_files": [f"{self._rules}/*.yaml"]})
        )
        command = [
            *("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver", "--web.enable-lifecycle"),
            *("--storage.tsdb.min-block-duration=60d", "--storage.tsdb.max-block-duration=60d"),
            "--storage.tsdb.retention.time=90d",
        ]
        super().__init__(command, port, folder / "log", ready="/-/ready", environ={"GOMAXPROCS": str(CORES)})

    def take(self, files: Sequence[Path]) -> None:
        """Take rule files, with each interval of minutes made one of one minute."""
        for path in files:
            (self._rules / path.name).write_text(
                re.sub(r"interval: \d+[mh]$", "interval: 1m", path.read_text(), flags=re.MULTILINE)
            )
        self.post("/-/reload")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.end()


def reads(files: Sequence[Path]) -> dict[str, tuple[float, float]]:
    """Return of each series of events that rules record how often they do, and over how long others read it, in seconds."""
    groups = [group for path in files for group in yaml_text.load(path.read_text())["groups"]]
    every = {rule["record"]: seconds_of(group["interval"]) for group in groups for rule in group["rules"] if "record" in rule}
    longest: dict[str, float] = defaultdict(float)
    for group in groups:
        for rule in group["rules"]:
            for name, window, offset in re.findall(r"(slo:\w+_events:\w+)\{[^}]*\}\[(\w+)\](?: offset (\w+))?", rule["expr"]):
                longest[name] = max(longest[name], seconds_of(window) + (seconds_of(offset) if offset else 0.0))
    return {name: (every[name], seconds) for name, seconds in longest.items()}


def record(server: Server, slos: Sequence[Slo], fleet: Fleet, files: Sequence[Path], most_days: float) -> int:
    """Write the events that the rules of the last weeks would have recorded; return how many samples."""
    now, chance = time.time(), np.random.default_rng(7)
    sender = Sender(server.port)
    of = {"service": [f"service-{n:02d}" for n in range(fleet.services)], "model": [f"model-{n}" for n in range(fleet.models)]}
    for name, (interval, window) in reads(files).items():
        times = np.arange(now - min(window, most_days * DAY), now - 60.0, interval)
        for slo in slos:
            by = [label for label in slo.by if label not in IDENTITY]  # one cluster, outside of Kubernetes
            if set(by) - set(of):
                raise SystemExit(f"{slo.name} is kept by {', '.join(by)}, of which the fleet has no values")
            for labels in _products({label: of[label] for label in by}):
                row = 20.0 * chance.uniform(0.8, 1.2, (1, times.size)) * (slo.budget / 2 if "bad" in name else 1.0)
                sender.add({**labels, "__name__": name, "slo": slo.name, "area": slo.area}, encoded(times, row)[0])
        print(f"{name}: {window / DAY:.1f} days, every {interval:g} s", file=sys.stderr)
    sender.flush()
    return sender.samples


def _products(values_of: dict[str, list[str]]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{}]
    for label, options in values_of.items():
        found = [{**labels, label: option} for labels in found for option in options]
    return found


def plant(server: Server, names: Sequence[str], fleet: Fleet) -> tuple[int, int]:
    """Write the raw series; return how many, and how many samples."""
    now, chance = time.time(), np.random.default_rng(11)
    recent = np.arange(now - HISTORY_SECONDS, now + AHEAD_SECONDS, SCRAPE_SECONDS)
    older = np.arange(now - OLDER_SECONDS, recent[0] - SCRAPE_SECONDS, OLDER_STEP)
    sender = Sender(server.port)
    up = [Planted({**fleet.node_labels(node), "__name__": "up"}, 1.0, is_gauge=True) for node in range(fleet.nodes)]
    for name in ["up", *names]:
        series = up if name == "up" else list(series_of(name, fleet, now))
        times = np.concatenate([older, recent]) if len(series) < MOST_OLDER else recent
        for first in range(0, len(series), BATCH):
            part = series[first : first + BATCH]
            for one, samples in zip(part, encoded(times, values(part, times, chance)), strict=True):
                sender.add(one.labels, samples)
        print(f"{len(series):>9,} {name}", file=sys.stderr)
    sender.flush()
    return sender.series, sender.samples


def measured(server: Server) -> dict[str, Group]:
    """Watch all groups until each was evaluated often enough. The first time is left out: nothing of it is in any cache yet."""
    groups: dict[str, Group] = defaultdict(Group)
    until = time.monotonic() + AHEAD_SECONDS
    while time.monotonic() < until:
        for told in server.ask("rules")["groups"]:
            group = groups[told["name"]]
            group.interval = float(told["interval"])
            if told["lastEvaluation"] in {group.last, "0001-01-01T00:00:00Z"}:
                continue
            if group.last:
                group.seconds.append(float(told["evaluationTime"]))
            group.last = told["lastEvaluation"]
            for number, rule in enumerate(told["rules"]):
                if rule["health"] == "err":
                    raise SystemExit(f"rule {rule['name']} of {told['name']} fails: {rule.get('lastError')}")
                window = f" {rule['labels']['window']}" if "window" in rule.get("labels", {}) else ""
                group.rules[f"{rule['name']}{window} ({told['name']}, {number + 1})"] = float(rule["evaluationTime"])
        needed = {name: FAST_EVALUATIONS if group.interval < 60.0 else SLOW_EVALUATIONS for name, group in groups.items()}
        if groups and all(len(group.seconds) >= needed[name] for name, group in groups.items()):
            return groups
        time.sleep(2.0)
    raise SystemExit("the groups were not evaluated often enough while there were samples")


def at_once(server: ServerProcess, files: Sequence[Path], at: float | None = None) -> tuple[float, float]:
    """Return wall and CPU seconds in which two workers ask for all rules of all groups, those of a group one after the other.

    Args:
        at: the moment they are asked for, in Unix seconds; None: now.
    """
    moment = {} if at is None else {"time": f"{at:.3f}"}
    groups = [group for path in files for group in yaml_text.load(path.read_text())["groups"]]

    def evaluate(group: dict[str, Any]) -> None:
        for rule in group["rules"]:
            server.answer("query", query=rule["expr"], **moment)

    def once() -> tuple[float, float]:
        began, cpu = time.perf_counter(), server.cpu_seconds()
        with ThreadPoolExecutor(CORES) as workers:
            list(workers.map(evaluate, groups))
        return time.perf_counter() - began, server.cpu_seconds() - cpu

    walls, cpus = zip(*(once() for _ in range(5)), strict=True)
    return statistics.median(walls), statistics.median(cpus)


def compared(server: Server, slos: Sequence[Slo]) -> tuple[float, float, int]:
    """Return what the ratios over five minutes take by raw series and by recorded ones, in seconds, and of how many objectives."""
    counted = [slo for slo in slos if not isinstance(slo.indicator, Slices)]
    wide = Timing(scrape=WINDOW_SECONDS / 4)
    raw = sum(_asked(server, f"({bad_events(slo, wide)}) / (({total_events(slo, wide)}) > 0)") for slo in counted)
    return raw, sum(_asked(server, error_ratio(slo, WINDOW_SECONDS)) for slo in counted), len(counted)


def _asked(server: Server, query: str) -> float:
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        server.ask("query", query=query)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def check(server: Server, slos: Sequence[Slo]) -> None:
    """End the program if what was measured is the evaluation of nothing."""
    found = {one["metric"]["slo"] for one in server.ask("query", query=f"count by (slo) ({TOTAL})")["result"]}
    if missing := {slo.name for slo in slos} - found:
        raise SystemExit(f"no events are recorded of {', '.join(sorted(missing))}")
    firing = server.ask("query", query='count by (alertname) (ALERTS{alertstate="firing"})')["result"]
    print("alerts that fire:", {one["metric"]["alertname"]: one["value"][1] for one in firing}, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    parser.add_argument("--nodes", type=int, default=Fleet().nodes)
    parser.add_argument("--days", type=float, default=28.0, help="of recorded events, at most")
    parser.add_argument("--rules", type=Path, default=ALERTS / "generated" / "prometheus", help="folder of rule files")
    options = parser.parse_args()
    files = sorted(options.rules.glob("*.rules.yaml"))
    texts = [path.read_text() for path in files]
    rules = [rule for text in texts for group in yaml_text.load(text)["groups"] for rule in group["rules"]]
    slos, fleet = load([ALERTS / "slos"]), Fleet(nodes=options.nodes, jobs=max(options.nodes * 200 // 1250, 1))
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        began = time.monotonic()
        print(f"{record(server, slos, fleet, files, options.days) / 1e6:.1f} million recorded samples", file=sys.stderr)
        series, samples = plant(server, names_in([rule["expr"] for rule in rules]), fleet)
        print(f"{series:,} series, {samples / 1e6:.1f} million samples in {time.monotonic() - began:.0f} s", file=sys.stderr)
        server.take(files)
        groups = measured(server)
        check(server, slos)
        wall, cpu = at_once(server, files)
        memory = f"{server.resident_mib():,.0f} MiB for {server.metric('prometheus_tsdb_head_series'):,.0f} series"
        for text in texts:
            for group in yaml_text.load(text)["groups"]:
                groups[group["name"]].interval = seconds_of(group["interval"])
        table = report(groups, len(rules), memory, (wall, cpu), compared(server, slos))
    print(table)
    if options.write:
        write_section("slo_rules", table, "python -m benchmarks.slo_rules --write")


def report(
    groups: dict[str, Group], rules: int, memory: str, at_once: tuple[float, float], against: tuple[float, float, int]
) -> str:
    total = sum(group.median for group in groups.values())
    mean = sum(group.median * 30.0 / group.interval for group in groups.values())
    raw, recorded, count = against
    dearest = sorted(groups.items(), key=lambda item: -item[1].median)[:8]
    each = sorted(((seconds, name) for group in groups.values() for name, seconds in group.rules.items()), reverse=True)[:16]
    rows = ["| what | seconds |", "|---|---|"]
    for interval in sorted({group.interval for group in groups.values()}):
        of = [group.median for group in groups.values() if group.interval == interval]
        rows.append(f"| {len(of)} groups that are evaluated every {interval:g} s, once | {sum(of):.2f} |")
    return "\n".join(
        [
            *rows,
            f"| all {rules} rules, one group after the other | {total:.2f} |",
            f"| the same by two workers at once, over HTTP; bar {BAR_SECONDS:g} | {at_once[0]:.2f}, of CPU {at_once[1]:.2f} |",
            f"| the mean of a cycle of 30 s | {mean:.2f} |",
            f"| {count} ratios over 5 minutes by raw series | {raw:.2f} |",
            f"| the same by recorded events | {recorded:.3f}, 1/{raw / recorded:.0f} |",
            "",
            f"Resident memory of Prometheus: {memory}.",
            "",
            "| the dearest groups | median seconds |",
            "|---|---|",
            *(f"| {name} | {group.median:.3f} |" for name, group in dearest),
            "",
            "| the dearest rules | seconds, last time |",
            "|---|---|",
            *(f"| {name} | {seconds:.3f} |" for seconds, name in each),
        ]
    )


if __name__ == "__main__":
    main()
