"""What the panels of the boards Fleet and Job cost a Prometheus that watches 1,250 nodes with 10,000 GPUs and 200 jobs.

What the boards read is written into a real Prometheus by remote write: recorded series over the six hours that a board shows, every
30 s; raw series of the whole fleet over a quarter of an hour, every 15 s, and those of the chosen job over all six hours. Then each
panel asks as Grafana would on a screen of 700 points: its queries one after the other, over six hours or for now.

    python -m benchmarks.board_queries                  # three minutes
    python -m benchmarks.board_queries --nodes 50       # a look
    python -m benchmarks.board_queries --write          # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from benchmarks.fleet_series import Fleet, Planted, metric_of, series_of, values
from benchmarks.remote_write import Sender, encoded
from benchmarks.sections import write_section
from benchmarks.slo_rules import BATCH, Server, running

from tachoscope_alerts.compile import recordings
from tachoscope_alerts.spec import files, policy
from tachoscope_core.metrics import gpu as gpu_metrics
from tachoscope_core.metrics import serving as serving_metrics
from tachoscope_core.metrics import training as training_metrics
from tachoscope_core.metrics.metric import IDENTITY
from tachoscope_dashboards.boards.fleet import board as fleet_board
from tachoscope_dashboards.boards.training import board as training
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.grafana_json import to_json

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from grafana_preview import interpolate as filling
from grafana_preview.interpolate import ALL, Choice
from grafana_preview.times import Span

BAR_SECONDS, TIMES = 1.0, 3
RANGE_SECONDS, STEP_SECONDS, RECENT_SECONDS, SCRAPE_SECONDS = 6 * 3600, 30, 900.0, 15.0
JOB = "pretrain-0007"
CHOSEN = (Choice("training_job", (JOB,)),)
OPTIONS = {
    "job": ("tachoscope",),
    "kind": ("expected", "seen"),
    "service": tuple(f"service-{number:02d}" for number in range(20)),
    "model": tuple(f"model-{number}" for number in range(5)),
    "outcome": serving_metrics.OUTCOMES,
    "instance": tuple(f"node-{number:05d}:9465" for number in range(12)),
}


def recorded(fleet: Fleet) -> Iterator[dict[str, str]]:
    """Yield the labels of all series that rules record for boards."""
    jobs = tuple(f"pretrain-{number:04d}" for number in range(fleet.jobs))
    for one in recordings.load(files.path_of("recordings.yaml")):
        states = training_metrics.TRAINING_STATES
        if "ranks" in one.name:
            states = training_metrics.RANK_STATES
        if "health" in one.name:
            states = gpu_metrics.GPU_HEALTH_STATES
        options = {**OPTIONS, "training_job": jobs, "state": states}
        names = sorted(one.labels - set(IDENTITY))  # one cluster, outside of Kubernetes
        for chosen in itertools.product(*(options[name] for name in names)):
            yield {**dict(zip(names, chosen, strict=True)), "__name__": one.name}


def plant(server: Server, fleet: Fleet, names: list[str]) -> int:
    """Write all series; return how many."""
    now, chance = time.time(), np.random.default_rng(5)
    sender = Sender(server.port)
    long = np.arange(now - RANGE_SECONDS, now + 120.0, STEP_SECONDS)
    for labels in recorded(fleet):
        row = 8.0 * chance.uniform(0.9, 1.1, (1, long.size))
        sender.add(labels, encoded(long, row)[0])
    recent = np.arange(now - RECENT_SECONDS, now + 120.0, SCRAPE_SECONDS)
    whole = np.arange(now - RANGE_SECONDS, now + 120.0, SCRAPE_SECONDS)
    for name in names:
        series = list(series_of(name, fleet, now))
        mine = [one for one in series if one.labels.get("training_job") == JOB]
        others = [one for one in series if one.labels.get("training_job") != JOB]
        for part, times in ((mine, whole), (others, recent)):
            _write(sender, part, times, chance)
        print(f"{len(series):>9,} {name}", file=sys.stderr)
    sender.flush()
    return sender.series


def _write(sender: Sender, series: list[Planted], times: np.ndarray, chance: np.random.Generator) -> None:
    for first in range(0, len(series), BATCH):
        part = series[first : first + BATCH]
        for one, samples in zip(part, encoded(times, values(part, times, chance)), strict=True):
            sender.add(one.labels, samples)


def queries(board: Board, choices: Sequence[Choice] = CHOSEN, seconds: float = RANGE_SECONDS) -> dict[str, list[tuple[str, bool]]]:
    """Return the expressions of each panel, and whether each asks for now only.

    Args:
        choices: of variables; all is chosen of the others. seconds: that the board shows.
    """
    named = {choice.name for choice in choices}
    chosen = [*choices, *(Choice(one.name, (ALL,), all_value=".*") for one in board.variables if one.name not in named)]
    span = Span(0.0, seconds, STEP_SECONDS)
    return {
        panel["title"]: [(filling.query(target["expr"], chosen, span), target["instant"]) for target in panel["targets"]]
        for panel in to_json(board)["panels"]
        if panel.get("targets")
    }


def seconds_of(server: Server, asked: list[tuple[str, bool]]) -> tuple[float, int]:
    """Return the median seconds that a panel's queries take, and how many bytes they answer."""
    taken, size = [], 0
    for _ in range(TIMES):
        now, began = time.time(), time.perf_counter()
        for query, instant in asked:
            if instant:
                size += len(server.answer("query", query=query, time=f"{now:.0f}"))
            else:
                span = {"start": f"{now - RANGE_SECONDS:.0f}", "end": f"{now:.0f}", "step": str(STEP_SECONDS)}
                size += len(server.answer("query_range", query=query, **span))
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), size // TIMES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    parser.add_argument("--nodes", type=int, default=Fleet().nodes)
    options = parser.parse_args()
    fleet = Fleet(nodes=options.nodes, jobs=max(options.nodes * 200 // 1250, 8))
    whom = policy.load(files.path_of("policy.yaml"))
    panels = {
        f"{board.title}: {title}": asked
        for board in (fleet_board.board(whom), training.board(whom))
        for title, asked in queries(board).items()
    }
    text = " ".join(query for asked in panels.values() for query, _ in asked)
    names = sorted({name for name in re.findall(r"(?<![\w:])tachoscope_\w+\b(?!:)", text) if metric_of(name)})
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        count = plant(server, fleet, names)
        measured = {name: seconds_of(server, asked) for name, asked in panels.items()}
    table = report(measured, count)
    print(table)
    if options.write:
        write_section("board_queries", table, "python -m benchmarks.board_queries --write")


def report(measured: dict[str, tuple[float, int]], count: int) -> str:
    rows = [
        f"{count:,} series; {len(measured)} panels, each asked {TIMES} times.",
        "",
        "| panel | seconds, median | answer, KiB |",
        "|---|---|---|",
    ]
    dearest = sorted(measured.items(), key=lambda item: -item[1][0])
    rows += [f"| {name} | {seconds:.3f} | {size / 1024:,.0f} |" for name, (seconds, size) in dearest[:10]]
    late = [name for name, (seconds, _) in measured.items() if seconds > BAR_SECONDS]
    of_board = {board: sum(one[0] for name, one in measured.items() if name.startswith(f"{board}:")) for board in ("Fleet", "Job")}
    rows += [
        "",
        f"All panels of a board, one after the other: {', '.join(f'{board} {total:.2f} s' for board, total in of_board.items())}.",
    ]
    rows.append(f"Above {BAR_SECONDS:g} s: {', '.join(late) or 'none'}.")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
