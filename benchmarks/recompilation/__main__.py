"""Compiles real trainings under `tachoscope run`, and holds its seconds and reasons against torch's own trace of the same runs.

    python -m benchmarks.recompilation                     # aot_eager: some minutes on two cores
    python -m benchmarks.recompilation --backend inductor  # with a C++ compiler: longer
    python -m benchmarks.recompilation --write             # into docs/develop/measurements.md

`--tlparse PROGRAM` has that program read the traces too: its seconds and reasons have to be the same.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.recompilation.training import KINDS
from benchmarks.recompilation.truth import Listed, Truth, of_tlparse, of_trace
from benchmarks.sections import write_section

from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_core.report.report import Report
from tachoscope_core.storage.store import Store

TOLERANCE = 0.10
HEADS = (
    "training",
    "seconds, traced",
    "ledger",
    "again, traced",
    "records",
    "times",
    "guards",
    "limit",
    "breaks",
    "finding",
    "right",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """A run, by torch's trace and by tachoscope. `listed`: what tlparse says; None: it was not asked."""

    kind: str
    truth: Truth
    job: JobRecords
    report: Report
    listed: Listed | None

    @property
    def ledger_seconds(self) -> float:
        """Seconds of all steps in the phase `compile`, those that a report leaves out too."""
        return sum(step.phase_seconds.get("compile", 0.0) for step in self.job.steps)

    @property
    def again_seconds(self) -> float:
        """Seconds of compiling again by the records."""
        return sum(row.seconds for row in self.job.compilations if row.recompiled)

    @property
    def reasons(self) -> dict[str, int]:
        """Guards that failed to how often, by the records."""
        found: dict[str, int] = {}
        for row in self.job.compilations:
            if row.reason and not row.limit:
                found[row.reason] = found.get(row.reason, 0) + 1
        return found

    @property
    def breaks(self) -> frozenset[str]:
        """Lines with a graph break, by the records."""
        return frozenset(place.partition(" ")[0] for row in self.job.compilations for place in row.graph_breaks)

    @property
    def finding(self) -> str:
        """The severity of the finding `recompilation`; empty: none."""
        return next((one.severity for one in self.report.findings if one.class_ == "recompilation"), "")

    @property
    def right(self) -> bool:
        """Whether all agrees within the tolerance, and the finding is there where it should be."""
        truth = self.truth
        return (
            _near(self.ledger_seconds, truth.seconds)
            and _near(self.again_seconds, truth.again_seconds)
            and self.reasons == truth.reasons
            and sum(bool(row.limit) for row in self.job.compilations) == truth.limits
            and self.breaks == truth.breaks
            and (self.finding not in ("", "info")) == (self.kind in ("lengths", "limit", "breaks"))
            and (self.listed is None or self._as_listed(self.listed))
        )

    @property
    def forward_seconds(self) -> float:
        """Seconds of forward by the records: tlparse tells none of a backward apart."""
        return sum(row.seconds for row in self.job.compilations if not row.backward)

    def _as_listed(self, listed: Listed) -> bool:
        limits = sum(bool(row.limit) for row in self.job.compilations)
        same = (self.reasons, limits, self.breaks) == (listed.reasons, listed.limits, listed.breaks)
        return same and _near(self.forward_seconds, listed.seconds)

    def cells(self) -> list[str]:
        """Return the row of the table."""
        truth = self.truth
        limits = sum(bool(row.limit) for row in self.job.compilations)
        return [
            self.kind,
            f"{truth.seconds:.2f}",
            f"{self.ledger_seconds:.2f}",
            f"{truth.again_seconds:.2f}",
            f"{self.again_seconds:.2f}",
            f"{truth.again}, {sum(self.reasons.values())}",
            "same" if self.reasons == truth.reasons else "differ",
            f"{truth.limits}, {limits}",
            f"{len(truth.breaks)}, {len(self.breaks)}",
            "not asked" if self.listed is None else f"{self.listed.seconds:.2f}, {self.forward_seconds:.2f}",
            self.finding or "none",
            "yes" if self.right else "NO",
        ]


def _near(value: float, truth: float) -> bool:
    return abs(value - truth) <= TOLERANCE * truth + 1e-3


def main() -> None:
    """Run the trainings, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recompilation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="aot_eager", help="of torch.compile")
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--tlparse", default="", metavar="PROGRAM")
    parser.add_argument("--write", action="store_true", help="write docs/develop/measurements.md")
    options = parser.parse_args()
    rows = []
    for kind in options.only:
        with tempfile.TemporaryDirectory() as folder:
            row = compare(kind, options.backend, options.steps, Path(folder), options.tlparse)
        rows.append(row)
        print(" | ".join(row.cells()), flush=True)
    lines = [HEADS, ["---"] * len(HEADS), *(row.cells() for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    print(table)
    if options.write:
        write_section("recompilation", table, f"python -m benchmarks.recompilation --backend {options.backend} --write")
    if not all(row.right for row in rows):
        raise SystemExit("not all agrees with torch's trace")


def compare(kind: str, backend: str, steps: int, folder: Path, tlparse: str) -> Compared:
    """Run one training, and read what both say of it."""
    trace, store = folder / "trace", folder / "store"
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "TACHOSCOPE_SPOOL": str(folder / "spool"),
        "TORCH_TRACE": str(trace),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }
    command = [str(Path(sys.executable).parent / "tachoscope"), "run", "--job", kind, "--store", str(store), "--"]
    training = [sys.executable, "-m", "benchmarks.recompilation.training", kind, "--backend", backend, "--steps", str(steps)]
    subprocess.run([*command, *training], env=environment, check=True, stdout=subprocess.DEVNULL)
    job = from_store(Store(str(store)), kind)
    return Compared(kind, of_trace(trace), job, analyze(job), _listed(tlparse, trace, folder / "listed") if tlparse else None)


def _listed(program: str, trace: Path, out: Path) -> Listed:
    """Return what tlparse says of the one process of a run."""
    for log in trace.glob("*.log"):  # none where nothing was compiled
        subprocess.run([program, str(log), "-o", str(out), "--no-browser"], check=True, stdout=subprocess.DEVNULL)
    return of_tlparse(out)


if __name__ == "__main__":
    main()
