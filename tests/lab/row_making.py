"""Makes rows of runs whose counts are known, and runs of the lab whose records are planted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lab.rows_of_runs import Fault, Named, Row

from making import job, synchronous
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

BASE = {"data_wait": 0.001, "forward": 0.030, "backward": 0.062, "optimizer": 0.004, "other": 0.001}
STEPS = 60


def named(slug: str, **changes: Any) -> Named:
    given: dict[str, Any] = {"ranks": "all", "seconds": 0.02, "share": 0.2, "severity": "critical", "confidence": 0.9, "score": 0.9}
    return Named(**{"slug": slug, "suspected": slug} | given | changes)


def row(truth: str = "", *found: str | Named, **changes: Any) -> Row:
    """Return a run into which a class was injected (none: it is clean), with what was found."""
    faults = (Fault(truth, "all", 0.02),) if truth else ()
    given: dict[str, Any] = {
        "id": f"{truth or 'clean'}-{'-'.join(map(str, found))}",
        "set": "test",
        "kind": "fault" if truth else "clean",
        "lookalike": "",
        "workload": "ddp",
        "severity": 0.2 if truth else 0.0,
        "faults": faults,
        "acceptable": (),
        "world_size": 2,
        "steps": 100,
        "clean_step_seconds": 0.1,
    }
    return Row(**given | changes, named=tuple(named(one) if isinstance(one, str) else one for one in found))


def step(**changes: float) -> dict[str, float]:
    return BASE | changes


def planted_run(
    folder: Path,
    own: list[list[dict[str, float]]],
    faults: list[dict[str, Any]],
    *,
    beats: Sequence[records.Heartbeat] = (),
    **truth: Any,
) -> Path:
    """Write a run as the lab does, with the records of a job whose ranks wait for each other."""
    steps, blocked = synchronous(own) if len(own[0]) > 1 else (own, None)
    content = job(steps, blocked=blocked, heartbeats=list(beats), other_cpu=0.01)
    store = Store(str(folder / "store"))
    by_writer: dict[str, list[bytes]] = {}
    for line in content.splitlines(keepends=True):
        by_writer.setdefault(records.decode(line).writer, []).append(line)
    for writer, rows in by_writer.items():
        store.write("planted", host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=b"".join(rows))
    told = {
        "schema": 1,
        "id": folder.name,
        "set": "test",
        "kind": "fault" if faults else "clean",
        "lookalike": "",
        "workload": "ddp",
        "severity": 0.2 if faults else 0,
        "faults": faults,
        "acceptable": [],
        "world_size": len(own[0]),
        "steps": len(own),
        "seed": 1,
        "clean_step_seconds": 0.1,
        "machine": {"cores": 2},
        "skipped": "",
    }
    (folder / "truth.json").write_text(json.dumps(told | truth))
    return folder
