"""The demo's traces get into the store, and the steps that they are of out of the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from making import job
from tachoscope_analyzers.records.load import from_store
from tachoscope_cli.demo import profile as demo_profile
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.store import Store, default_url


def test_traces_of_a_run_are_kept_with_the_records_of_the_steps_that_they_made_slower(tmp_path: Path) -> None:
    store = Store(default_url())
    writer = f"{1:08d}-0000-4000-8000-000000000000"
    lines = job([[{"forward": 0.1}] * 2] * 60)
    store.write("planted", host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=lines)
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    for rank in range(2):
        about = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": [event]}
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(about))

    kept = demo_profile.keep(store, "planted", tmp_path, 60, Console(quiet=True))

    assert [one.file for one in stored_traces.traces(store, "planted")] == ["rank-0.json", "rank-1.json"]
    assert kept.recording.endswith("-steps-30-32")
    found = from_store(store, "planted").traces
    assert [(one.rank, one.first_step, one.last_step) for one in found] == [(0, 29, 33), (1, 29, 33)]
    assert [one.reference for one in found] == [one.path for one in kept.traces]


@pytest.mark.bar
def test_the_demo_leaves_real_traces_of_its_ranks_and_its_verdict_is_that_of_the_steps_between() -> None:
    words = ["demo", "--fault", "comm_exposed", "--profile"]
    done = subprocess.run([sys.executable, "-m", "tachoscope_cli.main", *words], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "5 steps (29 to 33) under a profiler" in done.stdout
    assert "/trace?job=demo-comm_exposed&trace=" in done.stdout.splitlines()[-1]
    assert len(stored_traces.traces(Store(default_url()), "demo-comm_exposed")) == 2
