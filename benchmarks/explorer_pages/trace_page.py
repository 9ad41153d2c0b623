"""How long the explorer's server takes for the page Trace of a large trace, and what it sends, without a browser.

A real trace of an A100 is repeated to one and five million events, as in `trace_reading.py`. `cold`: the file was never read;
`warm`: its columns are in the cache of traces, and the page was never looked at; `again`: the same page again. Each figure is of
one run of the application by Streamlit's own test runner, in a process of its own.

    python -m benchmarks.explorer_pages.trace_page --turns 3 --write
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.sections import write_section
from benchmarks.traces.trace_reading import BUILD, files

WINDOWS = {"200 ms": 0.2, "20 ms": 0.02}
PARTS = ("operators", "kernels", "idle", "path", "queue", "memory", "collectives")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=("x1m", "x5m"), action="append")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(looks(options.one)))
        return
    names = options.only or ["x1m", "x5m"]
    results = {name: [turn(files(name)[0]) for _ in range(options.turns)] for name in names}
    rows = [
        " | ".join(
            [
                "",
                look,
                *(f"{middle(results[name], look, 0):.2f} | {middle(results[name], look, 1) / 1e6:.2f}" for name in names),
                "",
            ]
        )
        for look in results[names[0]][0]
    ]
    head = " | ".join(["", "look", *(f"{name[1:]} s | MB" for name in names), ""]).strip()
    table = "\n".join([head, "|---" * (1 + 2 * len(names)) + "|", *(row.strip() for row in rows)])
    print(table)
    if options.write:
        write_section("explorer_traces", table, "python -m benchmarks.explorer_pages.trace_page --write")


def middle(turns: list[dict[str, list[float]]], look: str, place: int) -> float:
    """Return the median over the turns: of seconds, or of bytes."""
    return statistics.median(turn[look][place] for turn in turns)


def turn(path: Path) -> dict[str, list[float]]:
    """Return seconds and bytes of each look: one process that reads the file, another that finds its columns."""
    BUILD.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(dir=BUILD, prefix="cache-")
    try:
        cold, warm = (in_process(path, folder) for _ in range(2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "first view, cold": cold["first view"],
        **{f"{look}, warm" if look == "first view" else look: warm[look] for look in warm},
    }


def in_process(path: Path, cache: str) -> dict[str, list[float]]:
    command = [sys.executable, "-m", "benchmarks.explorer_pages.trace_page", "--one", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=os.environ | {"TACHOSCOPE_CACHE": cache})
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def looks(path: Path) -> dict[str, list[float]]:
    """Return the seconds and the bytes of the figures of each look at a trace, in the order in which somebody goes."""
    from streamlit.testing.v1 import AppTest
    from streamlit.util import calc_hash

    from tachoscope_explorer.page import settings
    from tachoscope_explorer.server.run import APP

    settings.choose(settings.Settings(tempfile.gettempdir() + "/no-store"))
    page = AppTest.from_file(str(APP), default_timeout=600)
    page.run()  # what any first page costs: importing
    settings.choose(settings.Settings(tempfile.gettempdir() + "/no-store", traces=(str(path),)))
    page._page_hash = calc_hash("trace")
    found = {"first view": look(page), "again": look(page)}
    begin, end = (float(box.value) for box in page.number_input)
    for name, seconds in WINDOWS.items():
        page.number_input[1].set_value(begin + min(seconds * 1e3, end))
        found[f"window of {name}"] = look(page)
    for part in PARTS:
        page.query_params["part"] = part
        found[part] = look(page)
    return found


def look(page: Any) -> list[float]:
    begin = time.perf_counter()
    page.run()
    seconds = time.perf_counter() - begin
    assert not page.exception, page.exception[0].message
    return [seconds, sum(len(figure.proto.spec) for figure in page.get("plotly_chart"))]


if __name__ == "__main__":
    main()
