"""Stores for the benchmark of the explorer: one of many jobs, one of a job with many steps."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "generators"))

from making import job as planted
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

JOBS, RANKS, STEPS = 200, 8, 20_000


def fill(folder: Path, name: str) -> Path:
    """Return a store with many jobs, or with one that has many steps; made on first use."""
    store = folder / f"explorer-{name}"
    if store.is_dir():
        return store
    print(f"making {store} ...", file=sys.stderr)
    unfinished = Path(tempfile.mkdtemp(dir=folder))
    phases = {"data_wait": 0.01, "forward": 0.03, "backward": 0.06, "optimizer": 0.01}
    if name == "jobs":
        for number in range(JOBS):
            slow = {**phases, "data_wait": 0.05 if number % 3 == 0 else 0.01}
            put(unfinished, f"train-{number:03d}", planted([[phases, slow]] * 60))
    else:
        slow = {**phases, "forward": 0.045}
        put(unfinished, name, planted([[slow if rank == 3 else phases for rank in range(RANKS)]] * STEPS))
    unfinished.rename(store)
    return store


def put(store: Path, job: str, lines: bytes) -> None:
    """Write a job's records as agents do: an object for each writer."""
    of_writer = defaultdict[str, list[bytes]](list)
    for line in lines.replace(b'"job":"planted"', f'"job":"{job}"'.encode()).splitlines(keepends=True):
        of_writer[json.loads(line)["writer"]].append(line)
    host = "node-1"
    for writer, some in of_writer.items():
        first = records.decode(some[0])
        Store(str(store)).write(job, host=host, writer=writer, attempt=0, offset=0, time=first.time, lines=b"".join(some))
