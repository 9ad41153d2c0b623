"""Runs Holistic Trace Analysis or traceinsight (import name `hta` for both) on traces, in the peer's own environment.

build/bench/HolisticTraceAnalysis/bin/python benchmarks/traces/trace_peer.py TRACE.json.gz...
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis

    seconds: dict[str, float] = {}

    def timed(name: str, call, **options):
        begin = time.perf_counter()
        result = call(**options)
        seconds[name] = time.perf_counter() - begin
        return result

    files = dict(enumerate(sys.argv[1:]))
    analysis = timed("load", TraceAnalysis, trace_files=files, trace_dir="/")
    ranks = list(files)
    timed("breakdown", analysis.get_temporal_breakdown, visualize=False)
    timed("overlap", analysis.get_comm_comp_overlap, visualize=False)
    timed("idle", analysis.get_idle_time_breakdown, ranks=ranks, visualize=False)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
