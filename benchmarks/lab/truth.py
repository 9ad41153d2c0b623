"""What a run's `truth.json` says: what was caused, on which rank, and what it cost by the lab's own clocks."""

from __future__ import annotations

import os
import platform
from typing import Any

from benchmarks.lab import faults
from benchmarks.lab.rank_rows import Rows
from benchmarks.lab.spec import Planned, Spec

SCHEMA = 1


def machine() -> dict[str, Any]:
    """Return what the run's machine is, by name."""
    import torch

    return {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(), "torch": torch.__version__}


def _ranks(planned: Planned) -> list[int] | str:
    if not faults.cause_of(planned).one_rank or planned.rank < 0:
        return [planned.rank] if planned.rank >= 0 else "all"
    peer = planned.parameters.get("peer")
    return sorted({planned.rank} | ({int(peer)} if peer is not None and planned.cause == "pair" else set()))


def _fault(planned: Planned, rows: Rows | None) -> dict[str, Any]:
    cause = faults.cause_of(planned)
    notes = {
        name: value for rank in (rows.ranks if rows else []) for name, value in rank["notes"].items() if not isinstance(value, list)
    }
    return {
        "class": planned.slug,
        "ranks": _ranks(planned),
        "seconds_per_step": cause.seconds(rows, planned) if rows else 0.0,
        "first_step": planned.first_step,
        "parameters": {"cause": planned.cause, "planned_ratio": planned.seconds_ratio, **planned.parameters, **notes},
    }


def truth_of(spec: Spec, rows: Rows | None, skipped: str = "") -> dict[str, Any]:
    """Return the truth of a run as JSON types.

    Args:
        rows: what its ranks measured, None if it was skipped. skipped: the reason why it could not be caused here.
    """
    acceptable = sorted({slug for planned in spec.faults for slug in faults.cause_of(planned).acceptable})
    return {
        "schema": SCHEMA,
        "id": spec.id,
        "set": spec.set,
        "kind": spec.kind,
        "lookalike": spec.lookalike,
        "workload": spec.workload,
        "shape": spec.shape,
        "severity": spec.severity,
        "faults": [_fault(planned, rows) for planned in spec.faults],
        "acceptable": acceptable,
        "world_size": spec.world_size,
        "steps": spec.steps,
        "seed": spec.seed,
        "clean_step_seconds": rows.mean("clean_step_seconds") if rows else 0.0,
        "outside": rows.outside if rows else {},
        "machine": machine(),
        "skipped": skipped,
    }
