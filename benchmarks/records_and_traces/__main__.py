"""Do the step records and the profiler traces of one job say the same, and is it true?

A training of two ranks on CPU with one planted fault, which measures itself (training.py), runs under `tachoscope run` and a real
agent; `tachoscope profile` records some of its steps. Both are analyzed, and class, ranks and seconds a step are compared with each
other and with what was planted.

    python -m benchmarks.records_and_traces                    # all cases once, about a minute each
    python -m benchmarks.records_and_traces --only stall --repeat 3 --steps 5
    python -m benchmarks.records_and_traces --section          # and write the table into docs/develop/measurements.md

A machine that does other work at the same time gives wrong seconds.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.records_and_traces.cases import BY_NAME, CASES, Case
from benchmarks.records_and_traces.compare import Row, compared, summary, table
from benchmarks.records_and_traces.measure import with_command, with_own_profiler
from benchmarks.sections import write_section

OWN_PROFILER_STEPS = 160


def main() -> None:
    """Run the cases and print the table."""
    options = parse()
    cases = [BY_NAME[name] for name in options.only] or list(CASES)
    rows = []
    for number, case in enumerate([case for case in cases for _ in range(options.repeat)], start=1):
        rows.append(run(case, options))
        print(f"{number}: {table(rows[-1:]).splitlines()[-1]}", file=sys.stderr, flush=True)
    text = f"{table(rows)}\n\n```text\n{summary(rows)}\n```"
    print(text)
    if options.section:
        write_section("records_and_traces", text, "python -m benchmarks.records_and_traces --section")


def run(case: Case, options: argparse.Namespace) -> Row:
    """Run a case in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix=f"records-{case.name}-"))
    try:
        if options.own_profiler:
            found = with_own_profiler(case, folder, seconds=options.seconds, steps=OWN_PROFILER_STEPS, profiled=options.steps)
        else:
            found = with_command(case, folder, seconds=options.seconds, profiled=options.steps)
    finally:
        if options.keep:
            print(f"{case.name}: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return compared(case, found.records, found.trace, found.marks)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.records_and_traces", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], choices=list(BY_NAME), metavar="CASE", help=f"of {', '.join(BY_NAME)}")
    parser.add_argument("--repeat", type=int, default=1, help="how often each case")
    parser.add_argument("--steps", type=int, default=10, help="steps that the traces hold")
    parser.add_argument("--seconds", type=float, default=0.03, help="of the fault, per step")
    parser.add_argument("--own-profiler", action="store_true", help="the script records the traces; quicker, without an agent")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the runs")
    parser.add_argument("--section", action="store_true", help="write the table into docs/develop/measurements.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
