"""Judges tachoscope on public training loops, untouched and with planted faults.

The public code is not part of this project. Clone it once, and say where:

    git clone https://github.com/karpathy/nanoGPT public/nanoGPT
    git clone https://github.com/pytorch/examples public/examples
    pip install hydra-core boto3                                   # for minGPT-ddp
    python -m benchmarks.loops --sources public --out loops_out

Each run trains for 10 to 30 seconds on one thread a process under `tachoscope run`, then asks `tachoscope analyze`. Clean runs
must give no warning. A planted fault measures itself: its class, its line, its ranks and its seconds a step are known. Clean
scripts are the authors' own, but for the lines that ask for an accelerator and, where no option sets it, a size; the table says
where. torchvision is a stand-in of this folder with random images. What is not there is skipped, with the reason.

A machine that does other work at the same time gives wrong seconds. Rows are written one by one: the same command goes on where
it stopped. `--section` writes the table into docs/develop/measurements.md.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loops.catalogue import LOOPS
from benchmarks.loops.execute import RunError, Runner
from benchmarks.loops.faults import CLEAN, Fault, faults_of
from benchmarks.loops.judge import HEADS, Row, cells, has_fault, summary, table
from benchmarks.loops.loop import Loop
from benchmarks.loops.plant import AnchorError
from benchmarks.sections import PAGE, write_section

CLEAN_REPEATS = 3


@dataclass(frozen=True)
class Case:
    """One run to make."""

    loop: Loop
    fault: Fault
    repeat: int

    @property
    def name(self) -> str:
        """As `--only` is compared with."""
        return f"{self.loop.name}/{self.fault.name}"

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells its row from others."""
        return self.loop.name, self.fault.name, self.repeat


def main() -> None:
    """Run what is not done yet, and print the table."""
    options = parse()
    cases = cases_of(options.only, options.repeat)
    if options.list:
        print("\n".join(f"{case.name} {case.repeat}" for case in cases))
        return
    runner = Runner(options.sources.resolve(), options.out.resolve(), options.python, options.keep)
    runner.out.mkdir(parents=True, exist_ok=True)
    rows_file = runner.out / "rows.jsonl"
    rows = read_rows(rows_file)
    try:
        if not options.report:
            run_all(runner, left_of(runner, cases, rows), rows_file, options.jobs)
    except KeyboardInterrupt:
        runner.stop()
        print(f"\nstopped; the same command goes on. Rows: {rows_file}", file=sys.stderr)
        raise SystemExit(130) from None
    rows = sorted_rows(read_rows(rows_file), cases)
    print(table(rows), summary(rows), sep="\n\n")
    if options.section:
        with (PAGE.parent / "loops.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADS, *map(cells, rows)])
        wrong = f"Rows with anything wrong; all rows are in [loops.csv](loops.csv).\n\n{table(list(filter(has_fault, rows)))}"
        write_section("loops", f"{wrong}\n\n```text\n{summary(rows)}\n```", "python -m benchmarks.loops --section")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.loops", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=Path, default=Path("public"), help="folder with nanoGPT/ and examples/")
    parser.add_argument("--out", type=Path, default=Path("loops_out"), help="rows, reports and stores; give a new one for new code")
    parser.add_argument("--only", nargs="*", default=[], metavar="PATTERN", help="such as 'nanoGPT/*' or '*/clean'")
    parser.add_argument(
        "--repeat", type=int, default=1, help=f"how often the planted ones; the clean ones at least {CLEAN_REPEATS} times"
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter with torch; tachoscope is beside it")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side; more than 1 only to see whether all works")
    parser.add_argument("--keep", action="store_true", help="leave the planted copies in the folder for temporary files")
    parser.add_argument("--list", action="store_true", help="print the cases and do nothing")
    parser.add_argument("--report", action="store_true", help="print the table of the rows that are there")
    parser.add_argument(
        "--section", action="store_true", help="write what is wrong into docs/develop/measurements.md, all rows into loops.csv"
    )
    return parser.parse_args()


def cases_of(patterns: list[str], repeat: int) -> list[Case]:
    """Return the cases that a pattern names, all without one."""
    cases = [
        Case(loop, fault, number)
        for loop in LOOPS
        for fault in faults_of(loop)
        for number in range(max(repeat, CLEAN_REPEATS) if fault == CLEAN else repeat)
    ]
    return [case for case in cases if not patterns or any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)]


def left_of(runner: Runner, cases: list[Case], rows: list[Row]) -> list[Case]:
    """Return the cases without a row whose sources are there; say why others are skipped."""
    done = {(row["loop"], row["fault"], row["repeat"]) for row in rows if not row.get("error")}
    reasons = {loop.name: runner.missing(loop) for loop in dict.fromkeys(case.loop for case in cases)}
    for name, reason in reasons.items():
        if reason:
            print(f"{name}: skipped: {reason}", file=sys.stderr)
    return [case for case in cases if case.key not in done and not reasons[case.loop.name]]


def run_all(runner: Runner, cases: list[Case], rows_file: Path, jobs: int) -> None:
    """Run the cases and write a row of each."""

    def run(case: Case) -> Row:
        try:
            return runner.run(case.loop, case.fault, case.repeat)
        except (RunError, AnchorError) as error:
            return {"loop": case.loop.name, "fault": case.fault.name, "repeat": case.repeat, "error": str(error)}

    pool = ThreadPoolExecutor(jobs)
    try:
        for number, row in enumerate(pool.map(run, cases), start=1):
            with rows_file.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{number} of {len(cases)}: {table([row]).splitlines()[-1]}", file=sys.stderr, flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_rows(path: Path) -> list[Row]:
    """Return the last row of each case."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return list({(row["loop"], row["fault"], row["repeat"]): row for row in rows}.values())


def sorted_rows(rows: list[Row], cases: list[Case]) -> list[Row]:
    """Return the rows of these cases in their order."""
    found = {(row["loop"], row["fault"], row["repeat"]): row for row in rows}
    return [found[case.key] for case in cases if case.key in found]


main()
