"""A process that the kernel kills at the limit of a control group: what `tachoscope run` says at once, and the report after it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import records_of, run_watched
from tachoscope_analyzers.job.report import analyze

GROUPS = Path("/sys/fs/cgroup/memory")
LEAK = """
import os, sys, time
with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as file:
    file.write(str(os.getpid()))
import tachoscope
kept = []
while True:
    with tachoscope.phase("forward"):
        time.sleep(0.02)
        kept.append(bytearray(200_000))
    tachoscope.step()
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of version 1 with 160 MiB."""
    folder = GROUPS / f"tachoscope-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(160 << 20))
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made in {GROUPS}: {error.strerror}")
    yield folder
    while folder.exists():  # the kernel lets go of a killed process's memory in its own time
        with contextlib.suppress(OSError):
            folder.rmdir()
        time.sleep(0.01)


def test_a_leak_that_is_killed_is_named_with_its_limit_its_line_and_since_when(tmp_path: Path, group: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEAK)
    done = run_watched(tmp_path, sys.executable, str(script), str(group))
    job = records_of(tmp_path)
    report = analyze(job)

    assert f"the control group /{group.name} reached its limit of 160 MiB" in done.stderr
    (kill,) = job.out_of_memory
    assert (kill.victim, kill.failed_rank, kill.limit_bytes) == ("rank", 0, 160 << 20)
    assert report.findings[0].class_ == "out_of_memory"
    assert report.memory is not None
    assert report.memory.growth is not None
    assert (report.memory.growth.part, report.memory.growth.ranks) == ("process", [0])
    line = 1 + LEAK.splitlines().index("        kept.append(bytearray(200_000))")
    assert [one.line for one in report.memory.growth.lines][:1] == [f"train.py:{line}"]
    assert report.findings[0].where == f"train.py:{line}"
