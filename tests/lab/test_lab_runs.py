"""The lab's fastest classes, caused once each: what a run leaves, and what it does not leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers import REPOSITORY, assert_phases_sum, steps_of
from tachoscope_analyzers.ledger import states as ledger
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.storage.store import Store

pytestmark = [pytest.mark.alone, pytest.mark.bar]  # two ranks on two cores, and sizes of what was injected; a minute in all
FIELDS = {
    "schema", "id", "set", "kind", "lookalike", "workload", "severity", "faults", "acceptable", "world_size", "steps", "seed",
    "clean_step_seconds", "machine", "skipped",
}  # fmt: skip
SPOOLS, GROUPS = Path("/dev/shm"), Path("/sys/fs/cgroup")


def lab(*options: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.lab", *options]


def left_of(pid: int) -> list[Path]:
    """Return the spools and control groups that bear a lab's process id."""
    return [*SPOOLS.glob(f"tachoscope-lab-{pid}-*"), *GROUPS.glob(f"*/tachoscope-lab-{pid}-*")]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the smoke set, made by the command."""
    folder = tmp_path_factory.mktemp("lab")
    done = subprocess.run(lab("--set", "smoke", "--out", str(folder)), cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


@pytest.fixture(scope="module")
def truths(out: Path) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in out.glob("*/truth.json")}


def records_of_run(out: Path, run: str) -> JobRecords:
    return from_store(Store(str(out / run / "store")), "lab")


def test_each_run_has_a_truth_with_all_its_fields(truths: dict[str, dict[str, Any]]) -> None:
    assert len(truths) == 4
    for truth in truths.values():
        assert set(truth) >= FIELDS
        assert truth["set"] == "smoke" and truth["schema"] == 1 and not truth["skipped"]
        for fault in truth["faults"]:
            assert set(fault) == {"class", "ranks", "seconds_per_step", "first_step", "parameters"}


def test_each_run_has_the_steps_of_all_ranks_and_every_second_of_them_in_a_state(
    out: Path, truths: dict[str, dict[str, Any]]
) -> None:
    for run, truth in truths.items():
        job = records_of_run(out, run)
        for rank in range(truth["world_size"]):
            steps = steps_of(job, rank)
            assert [step.step for step in steps] == list(range(1, truth["steps"] + 1))
            assert_phases_sum(steps)
        for book in ledger.ledgers(aligned(job)):
            assert sum(book.states.values()) == pytest.approx(book.wall_seconds, rel=0.01)


def test_what_was_injected_by_the_injectors_own_clock_is_about_what_was_asked_for(truths: dict[str, dict[str, Any]]) -> None:
    faults = [(truth, fault) for truth in truths.values() for fault in truth["faults"]]
    assert len(faults) == 3
    for truth, fault in faults:
        asked = truth["severity"] * truth["clean_step_seconds"]
        assert 0.4 * asked < fault["seconds_per_step"] < 2.5 * asked, fault  # wide: disks and shared machines


def test_runs_that_are_there_are_kept(out: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/truth.json")}
    done = subprocess.run(lab("--set", "smoke", "--out", str(out)), cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert "4 of them there already" in done.stdout
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("*/truth.json")}


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.bar), signal.SIGKILL])
def test_a_lab_that_is_interrupted_leaves_no_process_and_no_run(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        lab("--set", "smoke", "--out", str(tmp_path)), cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    ranks = wait_for_ranks(process)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number != signal.SIGKILL else -signal.SIGKILL)
    stop_after_fault = time.monotonic() + 20
    while (left := {pid for pid in ranks if Path(f"/proc/{pid}").exists()}) and time.monotonic() < stop_after_fault:
        time.sleep(0.05)
    assert not left
    assert not list(tmp_path.glob("*/truth.json"))
    if number != signal.SIGKILL:
        assert not left_of(process.pid)
        assert not list(tmp_path.glob(".partial-*"))
        return
    subprocess.run(lab("--set", "smoke", "--out", str(tmp_path), "--only", "hang"), cwd=REPOSITORY, check=True, timeout=60)
    assert not left_of(process.pid)  # the next lab clears up after one that could not


def wait_for_ranks(process: subprocess.Popen[str]) -> set[int]:
    """Return the processes of a run that has begun."""
    stop_after_fault = time.monotonic() + 120
    while time.monotonic() < stop_after_fault:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        found = {int(pid) for pid in children.read_text().split()} if children.exists() else set()
        if len(found) >= 2 and list(SPOOLS.glob(f"tachoscope-lab-{process.pid}-*/run-*/*")):
            return found
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    raise AssertionError("no run began")
