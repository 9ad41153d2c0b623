"""A real DDP job that pauses ten times for long, each time with a reason, and then hangs: a real watch says so of the last only."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from test_live_hang import training
from test_watch import get, watching

SCRIPT = Path(__file__).with_name("pausing_ddp.py")
LIMIT_SECONDS, PAUSE_SECONDS = 6.0, 20.0
PAUSES, BEFORE_FIRST_STEP = 10, 2


def told(url: str) -> Any:
    """Return the job as the watch reports it; None: not yet."""
    listed = [line["job"] for line in json.loads(get(f"{url}/v1/jobs"))["jobs"]]
    return json.loads(get(f"{url}/v1/jobs/stuck")) if "stuck" in listed else None


def pauses(log: Path) -> list[tuple[str, float, float]]:
    """Return the pauses of the job: those of several ranks at one time are one, from the first's begin to the first's end."""
    found: list[tuple[str, float, float]] = []
    for name, begin, end in sorted(map(json.loads, log.read_text().splitlines()), key=lambda row: row[1]):
        if not found or begin > found[-1][2]:
            found.append((name, begin, end))
    return found


def told_by_run(folder: Path) -> list[float]:
    """Return since when the job hung, each time that `tachoscope run` said so, in Unix seconds."""
    store = Store(str(folder))
    lines = [line for segment in store.segments("stuck") for line in store.read(segment).splitlines() if b"WorkerHung" in line]
    return [record.since_time for line in lines if isinstance(record := records.decode(line), records.WorkerHung)]


@pytest.mark.bar
def test_ten_long_pauses_are_no_hangs_and_the_hang_after_them_is_one(tmp_path: Path) -> None:
    log = tmp_path / "pauses"
    with (
        training(tmp_path, str(PAUSE_SECONDS), str(log), script=SCRIPT, hang_seconds=LIMIT_SECONDS),
        watching(tmp_path / "store", hang_seconds=str(LIMIT_SECONDS)) as (_, url),
    ):
        looks: dict[float, Any] = {}
        deadline = time.monotonic() + 540
        while time.monotonic() < deadline and not (looks and list(looks.values())[-1]["state"] == "hung"):
            time.sleep(0.3)
            if view := told(url):
                looks[view["looked"]] = view
        found = pauses(log)

    assert all(begin > found[-1][1] for begin in told_by_run(tmp_path / "store")), "nor does the run say so"
    hung = [view for view in looks.values() if view["state"] == "hung"]
    assert len(found) == PAUSES, found
    assert len(hung) == 1 and hung[0]["looked"] > found[-1][2], (found, hung)
    steps = {view["looked"]: max(one["step"] for one in view["workers"]) for view in looks.values() if view["workers"]}
    for name, begin, end in found[BEFORE_FIRST_STEP:]:  # before it the job is not there yet
        seen = {steps[at] for at in steps if begin + LIMIT_SECONDS < at < end}
        assert len(seen) == 1, f"the watch looked, and no step came for longer than the limit: {name}"
