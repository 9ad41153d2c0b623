"""How quick the page of a long job is: two weeks of 64 ranks with steps of 2 s, compacted, in the real server and a real browser.

The job is made as columns (benchmarks/long_jobs/sets.py) on first use: two minutes and 1.4 GB below build/bench. Each turn
starts a server that has shown another page, and then takes the job's page in a new browser, another hour of it by its address, and
an hour by a click. Processor seconds are steadier than those of the clock where other work runs beside it.

    python -m benchmarks.explorer_pages.long_job                       # two weeks, three turns, prints the medians
    python -m benchmarks.explorer_pages.long_job --hours 72 --turns 1
    python -m benchmarks.explorer_pages.long_job --write               # and writes docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.explorer_pages.pages import ARGUMENTS, Explorer, Look, look, measured, opened, serving
from benchmarks.long_jobs.job import JOB, STEP_SECONDS
from benchmarks.long_jobs.sets import write_sets
from benchmarks.sections import write_section
from benchmarks.traces.trace_reading import BUILD, tree
from playwright.sync_api import Browser, sync_playwright

from tachoscope_core.storage.store import Store

HOUR = 3600.0
EARLIER = '[data-testid="stPageLink"] a[href*="from="]'
"""Links to intervals before the part of a job that is judged."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a look took. server, browser: processor seconds of all their processes."""

    look: Look
    server: float
    browser: float


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds of a process and all below it, those that have ended included."""
    ticks = 0
    for one in tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def job_store(ranks: int, hours: float) -> Path:
    """Return a store with the job; made on first use."""
    store = BUILD / f"explorer-sets-{ranks}-{hours:g}"
    if not store.is_dir():
        print(f"making {store.name} ...", file=sys.stderr)
        unfinished = Path(tempfile.mkdtemp(dir=BUILD))
        write_sets(unfinished, ranks, hours, STEP_SECONDS)
        unfinished.rename(store)
    return store


def turn(browser: Browser, store: Path, hours: float) -> dict[str, Cost]:
    """Return what each look takes, by its name."""
    middle = round((Store(str(store)).job_times()[JOB] - hours / 2 * HOUR) * 1e3)
    found = {}
    with tempfile.TemporaryDirectory(dir=BUILD) as cache, serving(["--store", str(store)], Path(cache)) as explorer:
        look(browser, explorer.url + "/upload")
        url = f"{explorer.url}/job?job={JOB}"
        with opened(browser) as (page, wire):

            def take(act: Callable[[], Any]) -> Cost:
                return cost(explorer, lambda: measured(page, wire, act))

            found["the job's page"] = take(lambda: page.goto(url))
            found["an hour by its address"] = take(lambda: page.goto(f"{url}&from={middle}&to={middle + 3_600_000}"))
            measured(page, wire, lambda: page.goto(url))
            found["an hour by a click"] = take(page.locator(EARLIER).first.click)
            found["the job's page again"] = take(lambda: page.goto(url))
    return found


def cost(explorer: Explorer, act: Callable[[], Look]) -> Cost:
    """Return what an act took; the browser is all that this process has started but for the server."""
    server, everything = cpu_seconds(explorer.process.pid), cpu_seconds(os.getpid())
    took = act()
    of_server = cpu_seconds(explorer.process.pid) - server
    return Cost(took, of_server, cpu_seconds(os.getpid()) - everything - of_server)


def report(turns: list[dict[str, Cost]]) -> str:
    """Return the table of medians."""
    rows = [
        "| look | drawn s | server answered s | server processor s | browser processor s | socket kB | figures |",
        "|---" * 7 + "|",
    ]
    for name in turns[0]:
        costs = [one[name] for one in turns]

        def middle(value: Callable[[Cost], float], costs: list[Cost] = costs) -> float:
            return statistics.median(map(value, costs))

        rows.append(
            f"| {name} | {middle(lambda one: one.look.drawn):.2f} | {middle(lambda one: one.look.answered):.2f} "
            f"| {middle(lambda one: one.server):.2f} | {middle(lambda one: one.browser):.2f} "
            f"| {middle(lambda one: one.look.socket_bytes / 1e3):,.0f} | {middle(lambda one: one.look.figures):g} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--hours", type=float, default=336.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    store = job_store(options.ranks, options.hours)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        turns = [turn(browser, store, options.hours) for _ in range(options.turns)]
        browser.close()
    table = report(turns)
    print(table)
    if options.write:
        write_section("explorer_long", table, "python -m benchmarks.explorer_pages.long_job --write")


if __name__ == "__main__":
    main()
