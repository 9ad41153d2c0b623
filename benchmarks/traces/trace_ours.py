"""Runs tachoscope's trace engine on traces and prints the seconds of each part.

python benchmarks/traces/trace_ours.py TRACE.json.gz...     # the cache is where TACHOSCOPE_CACHE says
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tachoscope_analyzers.trace.device_time.breakdown import breakdown
from tachoscope_analyzers.trace.device_time.idle import idle
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.ranks.job import executor_of
from tachoscope_analyzers.trace.reading.read import read


def one(path: Path) -> dict[str, float]:
    """Return the seconds of opening, breakdown (busy, idle, compute, communication, their overlap) and the causes of idle gaps."""
    seconds = {}
    begin = time.perf_counter()
    trace = read(path)
    seconds["load"] = time.perf_counter() - begin
    view = TraceView(trace)
    for name, analysis in (("breakdown and overlap", breakdown), ("idle", idle)):
        begin = time.perf_counter()
        analysis(view)
        seconds[name] = time.perf_counter() - begin
    return seconds


def main() -> None:
    paths = [Path(path) for path in sys.argv[1:]]
    begin = time.perf_counter()
    if len(paths) == 1:
        parts = one(paths[0])
    else:
        with executor_of(paths) as pool:
            parts = {}
            for seconds in pool.map(one, paths):
                for name, value in seconds.items():
                    parts[name] = parts.get(name, 0.0) + value
        parts = {name: value / sum(parts.values()) * (time.perf_counter() - begin) for name, value in parts.items()}
    print(json.dumps({"seconds": parts}))


if __name__ == "__main__":
    main()
