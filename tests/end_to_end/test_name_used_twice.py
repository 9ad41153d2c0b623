"""`tachoscope run --job X` beside another one of X: it says so, is an attempt of its own, and neither ends the other."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from helpers import BIN, answer, environment, run_watched
from tachoscope_cli.launcher.attempt_number import JOIN_SECONDS
from tachoscope_cli.launcher.live_attempts import LiveProcesses, others

LOOP = """
import pathlib, sys, time
import tachoscope
here = pathlib.Path(sys.argv[1])
for step in range(20):
    time.sleep(0.01)
    tachoscope.step()
(here / "stepped").touch()
while not (here / "stop").exists():
    time.sleep(0.01)
    tachoscope.step()
for step in range(20):
    time.sleep(0.01)
    tachoscope.step()
"""
SAID = "tachoscope: another attempt of job 'job' runs on this machine"


def report(folder: Path, *words: str) -> dict[str, Any]:
    done = answer(folder, *words, "--format", "json")
    return dict(json.loads(done.stdout))


def at_once(told: dict[str, Any]) -> list[str]:
    return [note["what"] for note in told["quality"] if "at once" in note["what"]]


def test_two_runs_of_one_name_at_once_are_two_attempts_that_both_complete(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "second" / "stop").touch()
    command = [str(BIN / "tachoscope"), "run", "--job", "job", "--", "python", str(script), str(tmp_path / "first")]
    first = subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "first" / "stepped").exists() and first.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        second = run_watched(tmp_path, "python", str(script), str(tmp_path / "second"))
        while_first_runs = answer(tmp_path, "store", "ls")
        alive = first.poll() is None
    finally:
        (tmp_path / "first" / "stop").touch()
        _, words = first.communicate(timeout=120)
    third = run_watched(tmp_path, "python", str(script), str(tmp_path / "second"))

    assert alive
    assert (first.returncode, second.returncode, third.returncode) == (0, 0, 0)
    assert second.stderr.count(SAID) == 1
    assert f"process {first.pid}" in second.stderr
    assert SAID not in words + third.stderr
    assert "failed" not in while_first_runs.stdout
    life = report(tmp_path, "goodput", "job")
    assert [(one["attempt"], one["ended"]) for one in life["life"]["attempts"]] == [(n, "completed") for n in range(3)]
    assert life["life"]["recoveries"] == []
    assert life["ledgers"][0]["states"].get("lost_work", 0.0) == 0.0
    (said,) = at_once(life)
    assert said.startswith("two attempts ran at once: 0 and 1 from ")
    assert at_once(report(tmp_path, "analyze", "--job", "job")) == [], "the newest attempt ran alone"


@pytest.mark.parametrize(
    ("environ", "joins", "ago", "is_another"),
    [
        ({}, False, 1.0, True),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, False, 1.0, True),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}, False, 1.0, False),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, False, 30.0, False),
        ({}, True, 30.0, False),
        ({}, True, JOIN_SECONDS + 1.0, True),
    ],
)
def test_runs_that_a_launcher_starts_for_ranks_or_nodes_are_not_another_attempt(
    environ: dict[str, str], joins: bool, ago: float, is_another: bool
) -> None:
    found = [LiveProcesses(attempt=0, host="here", began=1000.0 - ago, pid=7)]

    assert others(found, environ, host="here", joins=joins, now=1000.0) == (found if is_another else [])
