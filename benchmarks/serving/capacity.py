"""The knee that is predicted from one recording of moderate load, against a brute-force sweep of the same server. Quiet machine:

    python -m benchmarks.serving.capacity http://127.0.0.1:8140 --lengths AzureLLMInferenceTrace_conv.csv [--write]

The server must be one whose page counts iterations (vLLM); its clients run on this machine too, and belong to what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import random
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from benchmarks.sections import write_section

from tachoscope_analyzers.serving.capacity import capacity, engine_model
from tachoscope_analyzers.serving.capacity.objectives import Objective
from tachoscope_analyzers.serving.records.traffic import traffic
from tachoscope_core.servers import metrics_page
from tachoscope_core.servers.snapshot import Snapshot

OBJECTIVES = (Objective("ttft", 95, 0.5), Objective("itl", 95, 0.1))
LOOK_SECONDS = 0.5


def load_generator() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "serving_load.py"
    spec = importlib.util.spec_from_file_location("serving_load", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def quantile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]


def watched(url: str, work: Callable[[], None]) -> list[Snapshot]:
    """Look at the server's page until the work is done."""
    looks: list[Snapshot] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            now = time.time()
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                looks.append(metrics_page.read(answer.read().decode(), now))
            done.wait(max(0.0, now + LOOK_SECONDS - time.time()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        work()
    finally:
        done.set()
        thread.join()
    return looks


class Sweep:
    """Load at one rate after the other."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.load = chosen, load_generator()
        self.lengths = self.load.lengths(chosen.lengths, chosen.scale, chosen.most)

    def drive(self, rate: float, seconds: float, seed: int) -> dict[str, float]:
        """Return the clients' quantiles by objective."""
        randomly = random.Random(seed)
        plan = [(due, randomly.choice(self.lengths)) for due in self.load.arrivals(rate, seconds, 1.0, randomly)]
        answers = asyncio.run(self.load.drive(self.chosen.url, self.chosen.model, plan))
        good = [answer for answer in answers if answer.outcome == "ok"]
        assert len(good) == len(answers), f"{len(answers) - len(good)} of {len(answers)} requests failed"
        values = {"ttft": [answer.first_token for answer in good], "itl": [gap for answer in good for gap in answer.gaps]}
        return {one.name: quantile(values[one.signal], one.percent) for one in OBJECTIVES} | {"rate": len(answers) / seconds}


def met(row: dict[str, float]) -> bool:
    return all(row[one.name] <= one.seconds for one in OBJECTIVES)


def brute_force(sweep: Sweep, about: float, seconds: float, repeats: int) -> tuple[float, list[dict[str, float]]]:
    """Return the highest rate at which the objectives are met by more than half of the repeats, in steps of 5 %, and all rows."""
    rows, highest = [], 0.0
    for share in (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25):
        here = [sweep.drive(about * share, seconds, seed) for seed in range(100, 100 + repeats)]
        rows += here
        if sum(map(met, here)) * 2 <= repeats:
            return highest or about * share, rows
        highest = about * (share + 0.025)
        time.sleep(2)
    return highest, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--lengths", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--rates", type=float, nargs="+", default=[25.0, 40.0], help="of the recordings, requests a second")
    parser.add_argument("--record-seconds", type=float, default=120.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="of one rate of the sweep")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-running", type=int, default=128)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    sweep = Sweep(chosen)
    sweep.drive(5.0, 10.0, 1)  # warm
    predictions = []
    for rate in chosen.rates:
        looks = watched(chosen.url, lambda rate=rate: sweep.drive(rate, chosen.record_seconds, 2))  # type: ignore[misc]
        begun = time.process_time()
        model = engine_model.of_traffic(traffic(looks), max_running=chosen.max_running)
        found = capacity.capacity(model, OBJECTIVES)
        predictions.append((rate, found, time.process_time() - begun))
        low, high = found.knee_interval
        print(
            f"recorded at {rate:g}/s: knee {found.knee:.1f}/s ({low:.1f} to {high:.1f}), {predictions[-1][2]:.1f} s of CPU",
            flush=True,
        )
    about = sorted(found.knee for _, found, _ in predictions)[len(predictions) // 2]
    knee, rows = brute_force(sweep, about, chosen.seconds, chosen.repeats)
    for row in rows:
        print(f"{row['rate']:.1f}/s: {', '.join(f'{one.name} {row[one.name]:.3f} s' for one in OBJECTIVES)}: {met(row)}")
    table = "\n".join(
        [
            "| knee | requests a second | 95 % interval | off by |",
            "|---|---|---|---|",
            f"| brute force, {len(rows)} runs of {chosen.seconds:g} s | {knee:.1f} | | |",
            *(
                f"| predicted from {chosen.record_seconds:g} s at {rate:g}/s | {found.knee:.1f} | "
                f"{found.knee_interval[0]:.1f} to {found.knee_interval[1]:.1f} | {found.knee / knee - 1:+.1%} |"
                for rate, found, _ in predictions
            ),
        ]
    )
    print(table, f"load average {os.getloadavg()[0]:.1f}", sep="\n")
    if chosen.write:
        write_section("serving_capacity", table, "python -m benchmarks.serving.capacity --write")


if __name__ == "__main__":
    main()
