"""Finds the traces that others recorded."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("TACHOSCOPE_TEST_DATA") or Path(__file__).parents[4] / "shared" / "data") / "traces"
ALL = sorted(str(path.relative_to(DATA)) for path in DATA.rglob("*.json.gz"))

SMALL_FIRST = [pytest.param(name, marks=pytest.mark.bar) if (DATA / name).stat().st_size > 1_500_000 else name for name in ALL]
"""The same, for what takes seconds with a large one: those run with the bars."""


def recorded(name: str) -> Path:
    """Return the path of a recorded trace, such as `hta/v100_ns_resolution`, or skip the test."""
    path = DATA / (name if name.endswith(".gz") else f"{name}.json.gz")
    if not path.is_file():
        pytest.skip(f"no recorded trace {path} (set TACHOSCOPE_TEST_DATA)")
    return path
