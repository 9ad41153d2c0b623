"""Checks that folders and the README stay small enough to be read: part of `make lint`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCES = ("core", "agents", "analyzers", "alerts", "dashboards", "cli", "tools", "tests", "benchmarks", "examples")
MOST_FILES = 25
"""Python files in a folder, without those in its folders."""
MOST_README_LINES = 70


def main() -> int:
    """Print what is too large; return 1 if anything is, else 0."""
    found = [path.relative_to(ROOT).as_posix() for top in SOURCES for path in (ROOT / top).rglob("*.py")]
    problems = [*large_folders(found), *long_readme((ROOT / "README.md").read_text())]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


def large_folders(paths: Iterable[str]) -> list[str]:
    """Return a line for each folder that has too many of these Python files."""
    counts = Counter(str(PurePosixPath(path).parent) for path in paths)
    return [
        f"{folder}: {count} Python files, at most {MOST_FILES}: make folders by subject"
        for folder, count in sorted(counts.items())
        if count > MOST_FILES
    ]


def long_readme(text: str) -> list[str]:
    """Return a line if the README is too long."""
    lines = len(text.splitlines())
    return [f"README.md: {lines} lines, at most {MOST_README_LINES}: move details to docs/"] if lines > MOST_README_LINES else []


if __name__ == "__main__":
    sys.exit(main())
