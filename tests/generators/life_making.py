"""Makes the records of whole lives, whose truth is known because it is planted: attempts, failures, hangs, checkpoints, notices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_core.records import records
from tachoscope_core.report.job_life import Life
from tachoscope_core.report.report import Report

T0 = 1.7e9
NOW = T0 + 1e6
STEP = {"data_wait": 0.1, "forward": 0.3, "backward": 0.5, "optimizer": 0.1}
"""Shares of a step that is not said to be otherwise."""


class PlantedLife:
    """Collects records. All times are seconds since the life's origin; hosts have monotonic clocks of their own."""

    def __init__(self, job: str = "planted") -> None:
        self.job = job
        self.rows: list[records.Record] = []
        self._seqs: dict[str, int] = {}

    def add(
        self,
        kind: type[records.Record],
        at: float,
        *,
        writer: str,
        rank: int = -1,
        attempt: int = 0,
        host: str = "node-0",
        **more: Any,
    ) -> None:
        seq = self._seqs[writer] = self._seqs.get(writer, -1) + 1
        monotonic_ns = round((at + 1000.0 + 500.0 * int(host.rpartition("-")[2])) * 1e9)
        envelope = {
            "job": self.job,
            "attempt": attempt,
            "writer": writer,
            "seq": seq,
            "rank": rank,
            "local_rank": rank,
            "host": host,
        }
        self.rows.append(kind(**envelope, time=T0 + at, monotonic_ns=monotonic_ns, **more))

    def launcher(self, start: float, end: float | None, *, code: int = 0, attempt: int = 0, host: str = "node-0") -> None:
        writer = f"launcher-{host}-{start}"
        self.add(records.JobStarted, start, writer=writer, attempt=attempt, host=host, world_size=0, pid=1)
        if end is not None:
            status = "failed" if code else "completed"
            more = {"status": status, "exit_code": code, "reason": f"exit code {code}" if code else ""}
            self.add(records.JobEnded, end, writer=writer, attempt=attempt, host=host, **more)

    def process(
        self,
        rank: int,
        steps: Sequence[float],
        *,
        attempt: int = 0,
        start: float = 0.0,
        begin: float,
        world: int = 2,
        host: str = "node-0",
        restored: tuple[str, float, float] | None = None,
        restored_step: int = -1,
        saves: dict[int, str] | None = None,
        blocked: dict[int, float] | None = None,
        stopped: dict[int, float] | None = None,
        collecting: dict[int, float] | None = None,
        left: float | None = None,
        failed: str = "",
        rendezvous: float = 0.0,
        heartbeats: Sequence[tuple[float, str]] = (),
    ) -> float:
        """Add a process whose first step begins at `begin`; return when its last step ended.

        Args:
            restored: reference, begin and seconds of reading it. saves: after which of its steps it saves what.
            blocked: seconds of a step's backward that it waits for others. stopped: of its forward that it stood still.
            collecting: of its garbage collection.
            left: when it ended in order, or with `failed`; None: it is just gone. heartbeats: times and phases.
        """
        writer = self.writer(attempt, rank, start)
        own: dict[str, Any] = {"writer": writer, "rank": rank, "attempt": attempt, "host": host}
        self.add(
            records.JobStarted,
            max(begin - 1e-3, start),
            **own,
            world_size=world,
            pid=100 + rank,
            process_time=T0 + start,
            rendezvous_seconds=rendezvous,
        )
        if restored is not None:
            reference, at, seconds = restored
            more = {"reference": reference, "blocking_seconds": seconds, "step": restored_step}
            self.add(records.CheckpointRestored, at + seconds, **own, **more)
        end = begin
        for number, wall in enumerate(steps, start=1):
            waits, stands, collects = ((given or {}).get(number, 0.0) for given in (blocked, stopped, collecting))
            phases = {name: (wall - waits - stands - collects) * share for name, share in STEP.items()}
            phases["backward"] += waits
            phases["forward"] += stands
            phases |= {"gc": collects} if collects else {}
            end += wall
            cpu = phases | {"backward": phases["backward"] - waits}
            more = {"step": number, "wall_seconds": wall, "phase_seconds": phases, "cpu_seconds": cpu}
            self.add(records.StepDone, end, **own, **more, run_delay_seconds={"step": 0.0, "backward": 0.0})
            if saves and number in saves:
                self.add(
                    records.CheckpointSaved, end, **own, step=number, blocking_seconds=0.0, bytes=1000, reference=saves[number]
                )
        for at, phase in heartbeats:
            self.add(records.Heartbeat, at, **own, step=len(steps), phase=phase, window_seconds=5.0)
        if left is not None:
            self.add(records.JobEnded, left, **own, status="failed" if failed else "left", reason=failed, steps=len(steps))
        return end

    def writer(self, attempt: int, rank: int, start: float) -> str:
        return f"rank-{attempt}-{rank}-{start}"

    def gone(
        self,
        rank: int,
        at: float,
        *,
        attempt: int = 0,
        start: float = 0.0,
        host: str = "node-0",
        code: int = -9,
        seen: float | None = None,
    ) -> None:
        """Somebody saw a process gone, and alive at `seen`."""
        more = {"failed_rank": rank, "failed_attempt": attempt, "gone_time": T0 + at, "exit_code": code}
        more |= {"seen_time": T0 + seen} if seen is not None else {}
        own = self.writer(attempt, rank, start)
        self.add(records.WorkerFailed, at, writer=f"watch-{host}", host=host, reason="killed", failed_writer=own, **more)

    def load(self, folder: Path) -> JobRecords:
        """Return what a reader makes of the records."""
        path = folder / "00000000-0000-4000-8000-000000000000-000000.jsonl"
        path.write_bytes(b"".join(map(records.encode, self.rows)))
        return from_spool([path])


def judged(life: PlantedLife, folder: Path, **options: object) -> tuple[Report, Life]:
    """Return the report on a life; its states must add up to the wall time."""
    report = analyze_life(life.load(folder), now=NOW, **options)  # type: ignore[arg-type]
    assert report.life is not None
    assert sum(report.ledgers[0].states.values()) == pytest.approx(report.ledgers[0].wall_seconds, abs=1e-6)
    return report, report.life


def killed_three_times() -> PlantedLife:
    """Two ranks, steps of 1 s, a checkpoint every 4 steps; rank 1 is killed in the sixth step of each attempt but the last."""
    life = PlantedLife()
    life.launcher(0.0, 100.0)
    for attempt in range(4):
        at = 20.0 * attempt
        last = attempt == 3
        base = 4 * attempt
        for rank in range(2):
            life.process(
                rank,
                [1.0] * (8 if last else 5),
                attempt=attempt,
                start=at + 2.0,
                begin=at + 6.0,
                restored=(f"/ckpt/{base}", at + 3.0, 1.5) if attempt else None,
                saves={4: f"/ckpt/{base + 4}"},
                left=at + 14.0 if last else None,
                rendezvous=0.5,
            )
            if not last:
                life.gone(rank, at + 11.5 + (0.5 if rank == 0 else 0.0), attempt=attempt, start=at + 2.0, code=-9 if rank else -15)
    return life
