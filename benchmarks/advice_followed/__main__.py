"""Follows the advice of `tachoscope analyze`, and measures whether the step is as short as it promised.

    python -m benchmarks.advice_followed --out advice_out

Each case is a small training with one planted cost. It runs under `tachoscope run`; the first finding with settings is read from
the report; the training runs again with these settings and no other change. Its own clock says how long a step takes.

A machine that does other work at the same time gives wrong seconds. Rows are written one by one: the same command goes on where
it stopped. `--section` writes what missed its promise into docs/develop/measurements.md, and all rows into advice.csv beside it.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import sys
from pathlib import Path

from benchmarks.advice_followed.cases import Case, all_cases
from benchmarks.advice_followed.follow import Follower, Row, RunError
from benchmarks.advice_followed.table import HEADS, cells, is_off, summary, table
from benchmarks.sections import PAGE, write_section


def main() -> None:
    """Run what is not done yet, and print the table."""
    options = parse()
    cases = [
        (case, repeat)
        for case in all_cases()
        for repeat in range(options.repeat)
        if not options.only or any(fnmatch.fnmatch(case.name, pattern) for pattern in options.only)
    ]
    if options.list:
        print("\n".join(f"{case.name} {repeat}" for case, repeat in cases))
        return
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows_file = out / "rows.jsonl"
    if not options.report:
        run_all(Follower(out, options.seconds), cases, rows_file)
    found = {(row["case"], row["repeat"]): row for row in read_rows(rows_file)}
    rows = [found[case.name, repeat] for case, repeat in cases if (case.name, repeat) in found]
    print(table(rows), summary(rows), sep="\n\n")
    if options.section:
        with (PAGE.parent / "advice.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADS, *map(cells, rows)])
        write_section("advice_followed", section(rows), "python -m benchmarks.advice_followed --section")


def section(rows: list[Row]) -> str:
    """Return what of the rows stands in the page of measurements."""
    off = f"Rows that are not right; all rows are in [advice.csv](advice.csv).\n\n{table(list(filter(is_off, rows)))}"
    return f"{off}\n\n```text\n{summary(rows)}\n```"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.advice_followed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("advice_out"), help="rows and stores; give a new one for new code")
    parser.add_argument("--only", nargs="*", default=[], metavar="PATTERN", help="such as 'sleep-*'")
    parser.add_argument("--repeat", type=int, default=1, help="how often each case")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training in each run; each case has one or two runs")
    parser.add_argument("--list", action="store_true", help="print the cases and do nothing")
    parser.add_argument("--report", action="store_true", help="print the table of the rows that are there")
    parser.add_argument("--section", action="store_true", help="write docs/develop/measurements.md and advice.csv")
    return parser.parse_args()


def run_all(follower: Follower, cases: list[tuple[Case, int]], rows_file: Path) -> None:
    """Run the cases without a row, or whose row is an error, and write a row of each."""
    done = {(row["case"], row["repeat"]) for row in read_rows(rows_file) if not row.get("error")}
    left = [(case, repeat) for case, repeat in cases if (case.name, repeat) not in done]
    for number, (case, repeat) in enumerate(left, start=1):
        try:
            row = follower.follow(case, repeat)
        except RunError as error:
            row = {"case": case.name, "repeat": repeat, "error": str(error)}
        with rows_file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{number} of {len(left)}: {table([row]).splitlines()[-1]}", file=sys.stderr, flush=True)


def read_rows(path: Path) -> list[Row]:
    """Return the rows that are there, the last one of a case last."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
