"""Has the kernel kill trainings when memory runs out, and asks what grew, of which rank and at which line.

    python -m benchmarks.out_of_memory --out build/out-of-memory                 # 20 kills, 20 clean runs, 10 caches: about 25 min
    python -m benchmarks.out_of_memory --only "list, tensors" --out build/out-of-memory
    python -m benchmarks.out_of_memory --judge --out build/out-of-memory      # the same runs by code that has changed

Needs root and the memory controller of control groups version 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from benchmarks.out_of_memory.runs import GROUPS, RUNS, Run, judge, line_of, make

from tachoscope_core.report.report import Report


def judged(run: Run, report: Report | None, said: str) -> tuple[bool, bool, str]:
    """Return whether rank and part are right, whether the line is, and what was said."""
    if report is None:
        return False, False, said.strip().splitlines()[-1] if said.strip() else "no report"
    found = [finding for finding in report.findings if finding.class_ == "out_of_memory"]
    if run.kind != "kill":
        return not found, True, "nothing" if not found else f"{found[0].cause}: {report.memory.growth if report.memory else None}"
    memory = report.memory
    if not found or memory is None or not memory.kills:
        return False, False, "no finding"
    grown = memory.growth
    if grown is None:
        return False, False, "nothing grew"
    lines = [one.line for one in grown.lines]
    ranks = [run.rank] if run.rank >= 0 else []
    right = grown.part == run.part and grown.ranks == ranks
    kill = memory.kills[0]
    killed = f"{kill.victim} {kill.rank} killed ({'+'.join(kill.sources)})"
    what = f"{killed}; {grown.part} {grown.ranks} +{grown.bytes >> 20} MiB since {grown.since_step}; {lines[:2]}"
    return right, not run.truth or lines[:1] == [line_of(run.truth)], what


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m benchmarks.out_of_memory", description=__doc__)
    options.add_argument("--out", type=Path, default=Path("build/out-of-memory"))
    options.add_argument("--only", action="append", default=[], help="runs whose name contains this; or kill, clean, cache")
    options.add_argument("--judge", action="store_true", help="judge the runs that are in --out, and make none")
    given = options.parse_args()
    if not given.judge and not (GROUPS / "memory.limit_in_bytes").exists():
        sys.exit(f"{GROUPS} is not the memory controller of version 1")
    runs = [run for run in RUNS if not given.only or any(text in run.name or text == run.kind for text in given.only)]
    counts: dict[str, list[int]] = {}
    for number, run in enumerate(runs, 1):
        began = time.monotonic()
        folder = given.out / re.sub(r"\W+", "-", run.name)
        if given.judge and not (folder / "said.txt").exists():
            continue
        right, line, what = judged(run, *(judge(folder) if given.judge else make(run, folder)))
        row = counts.setdefault(run.kind, [0, 0, 0, 0])
        row[0] += right
        row[1] += 1
        row[2] += line and bool(run.truth)
        row[3] += bool(run.truth)
        mark = ("right" if right else "WRONG") + ("" if not run.truth else ", line right" if line else ", LINE WRONG")
        print(f"{number}/{len(runs)} {run.kind}, {run.name}: {mark} ({time.monotonic() - began:.0f} s): {what}", flush=True)
    for kind, (right, count, lines, owned) in counts.items():
        print(f"{kind}: {right} of {count} right" + (f", line {lines} of {owned}" if owned else ""))


if __name__ == "__main__":
    main()
