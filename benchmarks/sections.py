"""Writes a benchmark's result into its place in docs/develop/measurements.md."""

from __future__ import annotations

import os
import time
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "develop" / "measurements.md"


def write_section(name: str, table: str, command: str = "") -> None:
    """Replace what stands between the markers of this name, with date, machine and command."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    head, found, rest = PAGE.read_text().partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{PAGE} has no place for the result: add the lines {begin} and {end}")
    command = command or f"python benchmarks/{name}.py --write"
    note = f"{time.strftime('%Y-%m-%d')}, virtual machine with {os.cpu_count()} cores, no GPU, `{command}`"
    PAGE.write_text(f"{head}{begin}\n{note}\n\n{table}\n{end}{rest.partition(end)[2]}")
