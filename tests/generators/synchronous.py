"""Plants synchronous jobs: ranks that wait for each other in backward, as DDP does, so that the truth of each step is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from making import job
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_core.records import records
from tachoscope_core.report.report import Finding, Report

BASE = {"data_wait": 0.001, "forward": 0.020, "backward": 0.040, "optimizer": 0.002, "other": 0.001}
TRANSFER = 0.002
SEGMENT = "00000000-0000-4000-8000-000000000000-000000.jsonl"

Matrix = npt.NDArray[np.float64]


def planted(tmp_path: Path, extra: dict[str, Matrix], more: list[records.Record] | None = None, **options: Any) -> JobRecords:
    """Return a job whose phases last `BASE` + `extra`, each of shape (steps, ranks), and who waited until all were done."""
    shape = next(iter(extra.values())).shape
    phases = {name: np.full(shape, seconds) + extra.get(name, 0.0) for name, seconds in BASE.items()}
    phases |= {name: seconds for name, seconds in extra.items() if name not in BASE}
    own = sum(phases.values())
    waits = own.max(axis=1, keepdims=True) - own + TRANSFER
    phases["backward"] = phases["backward"] + waits
    rows = [[{name: float(phases[name][k, r]) for name in phases} for r in range(shape[1])] for k in range(shape[0])]
    path = tmp_path / SEGMENT
    path.write_bytes(job(rows, blocked=waits.tolist(), **options) + b"".join(map(records.encode, more or [])))
    return from_spool([path])


def bad(report: Report) -> list[Finding]:
    """Return the findings that are a warning or worse."""
    return [finding for finding in report.findings if finding.severity != "info"]


def found(tmp_path: Path, extra: dict[str, Matrix], more: list[records.Record] | None = None, **options: Any) -> list[Finding]:
    """Return what is found in such a job, warnings and worse."""
    return bad(analyze(planted(tmp_path, extra, more, **options)))


def names(findings: list[Finding]) -> list[str]:
    """Return the classes of findings."""
    return [finding.class_ for finding in findings]


def signal(finding: Finding, begins: str) -> float:
    """Return the value of the evidence whose signal begins so."""
    return next(row.value for row in finding.evidence if row.signal.startswith(begins))
