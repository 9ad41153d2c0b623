"""What several tests share: commands run in a process of their own, and the records that they left."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

import forked
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MEASURED = """
import os, resource, subprocess, sys
done = subprocess.run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(done.returncode)
"""
"""A program that writes the most memory of a command, in KiB, to a file. It stands between: of a process that a large one begins,
the kernel counts the size of that one too."""


def environment(tmp_path: Path, **extra: str) -> dict[str, str]:
    """Return an environment whose spool and store lie in `tmp_path`, with nothing of tachoscope's or a launcher's from outside."""
    foreign = ("TACHOSCOPE_", "TORCHELASTIC_", "SLURM_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **ours,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "TACHOSCOPE_SPOOL": str(tmp_path / "spool"),
        "TACHOSCOPE_STORE": str(tmp_path / "store"),
        "TACHOSCOPE_MANIFEST_WAIT_SECONDS": "400",  # of the lowest priority: up to 30 s each on a busy machine
        **extra,
    }


def execute(tmp_path: Path, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new folder `work` of `tmp_path`."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run(
        command, cwd=work, env=environment(tmp_path, **extra), capture_output=True, text=True, timeout=500, check=False
    )


def tachoscope(tmp_path: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `tachoscope` with these words in a process of its own, in a new folder `work` of `tmp_path`."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return forked.run(words, cwd=work, environ=environment(tmp_path, **extra), outputs=tmp_path, seconds=500)


def run_watched(tmp_path: Path, *command: str, job: str = "job", **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command under `tachoscope run`."""
    return tachoscope(tmp_path, "run", "--store", str(tmp_path / "store"), "--job", job, "--", *command, **extra)


def records_of(tmp_path: Path, job: str = "job") -> JobRecords:
    """Return what the store in `tmp_path` holds of a job."""
    return from_store(Store(str(tmp_path / "store")), job)


def steps_of(job: JobRecords, rank: int = 0) -> list[records.StepDone]:
    """Return the steps of a rank in their order."""
    return sorted((step for step in job.steps if step.rank == rank), key=lambda step: step.monotonic_ns)


def seconds_by_phase(steps: list[records.StepDone]) -> Counter[str]:
    """Return the seconds of all steps by phase."""
    total: Counter[str] = Counter()
    for step in steps:
        total.update(step.phase_seconds)
    return total


def assert_phases_sum(steps: list[records.StepDone]) -> None:
    """Each step's phases sum to its wall time, which is measured apart from them, and none is negative."""
    for step in steps:
        assert min(step.phase_seconds.values()) >= 0
        assert abs(sum(step.phase_seconds.values()) - step.wall_seconds) < 1e-6


def answer(tmp_path: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `tachoscope` with these words where `execute` would, in this process."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    with mock.patch.dict(os.environ, environment(tmp_path, **extra), clear=True), contextlib.chdir(work):
        return command(*words)


def command(*words: object) -> subprocess.CompletedProcess[str]:
    """Run `tachoscope` with these words in this process: without the second that it takes to begin one.

    For what is about the command's answers; what is about its process (signals, what it imports) has one of its own.
    """
    from tachoscope_cli.main import main

    arguments = list(map(str, words))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    return subprocess.CompletedProcess(
        ["tachoscope", *arguments], code if isinstance(code, int) else 0, out.getvalue(), err.getvalue()
    )


def without_rights_to_others_files(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `tachoscope` as a root that file modes bind, as they bind users: Python itself may be where only root can read."""
    rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    program = [sys.executable, "-m", "tachoscope_cli.main"]
    return subprocess.run([*rights, *program, *words], capture_output=True, text=True)
