"""Runs a case and returns the reports on its step records and on its profiler traces."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.loops.truth import Marks, read_marks
from benchmarks.records_and_traces.cases import Case

HERE = Path(__file__).parent
TESTS = HERE.parent.parent / "tests"
LIMIT_SECONDS = 300.0
STEPS_BEFORE = 40
"""So many steps are done before `tachoscope profile` is asked."""

Report = dict[str, Any]


@dataclass(frozen=True)
class Reports:
    """What was said of one job, and what its scripts measured."""

    records: Report
    trace: Report
    marks: Marks


def with_own_profiler(case: Case, folder: Path, *, seconds: float, steps: int, profiled: int) -> Reports:
    """Run a case whose script records the traces with `torch.profiler`."""
    run = subprocess.run(
        _training(case, folder, seconds, steps, profiled),
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"{case.name}: the training ended with exit code {run.returncode}: {run.stderr[-8000:]}")
    return _reports(case, folder, sorted(folder.glob("rank-*.json")))


def with_command(case: Case, folder: Path, *, seconds: float, profiled: int) -> Reports:
    """Run a case under an agent, and record the traces with `tachoscope profile`."""
    sys.path[:0] = [str(TESTS / name) for name in ("generators", "servers", "support", "trainings", "node")]
    from processes import AgentProcess, wait_for

    with tempfile.TemporaryDirectory(prefix="tk") as sockets:
        agent = AgentProcess(folder, profiles={"sockets": [sockets], "automatic": False, "interval_seconds": 1})
        agent.start()
        try:
            environment = _environment(folder) | {"KINETO_IPC_SOCKET_DIR": sockets, "KINETO_LOG_LEVEL": "3"}
            with _running(_training(case, folder, seconds, 0, 0), environment, folder / "run.log") as run:
                wait_for(
                    lambda: sum(one["training_job"] == case.name for one in json.loads(agent.get("/v1/profiles"))["ranks"]) == 2
                )
                wait_for(lambda: _steps(folder) >= STEPS_BEFORE)
                _tachoscope(folder, "profile", "--job", case.name, "--steps", str(profiled))
                (folder / "stop").touch()
                if run.wait(LIMIT_SECONDS):
                    raise RuntimeError(f"{case.name}: the training failed: {(folder / 'run.log').read_text()[-8000:]}")
        finally:
            agent.stop()
    return _reports(case, folder, sorted((folder / "store" / "jobs" / case.name / "traces").glob("*/rank-*.json.gz")))


def _reports(case: Case, folder: Path, traces: list[Path]) -> Reports:
    records = _tachoscope(folder, "analyze", "--job", case.name, "--format", "json")
    trace = _tachoscope(folder, "analyze", *map(str, traces), "--format", "json")
    return Reports(json.loads(records), json.loads(trace), read_marks(folder / "marks"))


def _training(case: Case, folder: Path, seconds: float, steps: int, profiled: int) -> list[str]:
    (folder / "marks").mkdir(exist_ok=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [str(HERE / "training.py"), case.name, str(seconds), str(steps), str(profiled), str(folder)]
    return [*_COMMAND, "run", "--job", case.name, "--", *torchrun, *script]


_COMMAND = [sys.executable, "-m", "tachoscope_cli.main"]


def _tachoscope(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [*_COMMAND, *words], env=_environment(folder), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"tachoscope {words[0]} ended with exit code {done.returncode}: {done.stderr[-8000:]}")
    return done.stdout


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        run = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield run
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(60)


def _environment(folder: Path) -> dict[str, str]:
    foreign = ("TACHOSCOPE_", "TORCHELASTIC_", "KINETO_", "SLURM_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    places = {f"TACHOSCOPE_{name.upper()}": str(folder / name) for name in ("spool", "store", "cache")}
    return ours | places | {"OMP_NUM_THREADS": "1", "LOOPS_MARKS": str(folder / "marks"), "PYTHONWARNINGS": "ignore"}


def _steps(folder: Path) -> int:
    return sum(mark.kind == "step" for own in read_marks(folder / "marks").values() for mark in own) // 2
