"""A long life: memory stays flat, and nothing is left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

TICKS_A_RUN = 8640
"""A tenth of a day of ticks a second; `make bars` asks for all of it."""


@pytest.mark.bar
def test_a_day_of_ticks_keeps_memory_flat_and_leaves_no_file_behind(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    runs = pytestconfig.getoption("--bar-runs")
    script = Path(__file__).with_name("soak.py")
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(TICKS_A_RUN * runs)],
        capture_output=True, text=True, check=True, timeout=1800, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    result = json.loads(done.stdout)

    settled = [resident for tick, resident in result["resident"] if tick >= 1000 * runs]
    half = len(settled) // 2
    growth = sum(settled[-half:]) / half - sum(settled[:half]) / half
    assert growth < 1 << 20, f"{growth / 2**20:.2f} MiB: {[resident >> 10 for resident in settled]}"
    assert result["complete"]
    assert result["errors"] == 0
    assert result["jobs"] == 0
    assert set(result["left"]) <= {
        "state/journal.sqlite",
        "state/journal.sqlite-wal",
        "state/journal.sqlite-shm",
        "state/live.json",
    }
    assert result["records"] == result["steps"] + 2 * 2 * -(-TICKS_A_RUN * runs // 600)
    assert result["descriptors"] < 30
