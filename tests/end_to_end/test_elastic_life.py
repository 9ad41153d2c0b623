"""A real torchrun job that is killed three times, hung once and preempted once: its report against what really happened.

The truth comes from the job's own log and from who killed it (see `elastic_killer`), never from tachoscope's records.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import elastic_killer
import elastic_truth as truth
from helpers import BIN, REPOSITORY, answer, environment

# A variant, with more of everything, of what `cli/test_run_watch.py` shows.
pytestmark = [pytest.mark.bar, pytest.mark.alone]  # times within a second; and one life serves all tests only in one process
RANKS = 2
NEW_STEPS = 12
"""How many the second run adds to those that the first had done when it was preempted."""
HANG_SECONDS = 3.0
"""Threshold of the watcher; the killer's hang lasts longer."""


@dataclass(frozen=True)
class Life:
    """Attempts from the job's log, deeds from the killer, Unix times of each `tachoscope run`, and the report."""

    attempts: list[list[truth.RankTruth]]
    deeds: list[dict[str, Any]]
    runs: list[tuple[float, float]]
    stderr: list[str]
    report: dict[str, Any]

    @property
    def recoveries(self) -> list[dict[str, Any]]:
        return self.report["life"]["recoveries"]


def plan(seed: int) -> list[dict[str, Any]]:
    """Return three kills and a hang in any order, then the preemption, at random steps and moments."""
    dice = random.Random(seed)
    deeds = ["kill", "kill", "kill", "hang"]
    dice.shuffle(deeds)
    return [
        {
            "deed": deed,
            "rank": dice.randrange(RANKS),
            "after_steps": dice.randint(4, 16),
            "into_step_seconds": dice.uniform(0, 0.06),
        }
        for deed in [*deeds, "preempt"]
    ]


def live(tmp_path: Path, seed: int) -> Life:
    """Run the job until the preemption, then once more for some steps."""
    folder = tmp_path / "work"
    folder.mkdir()
    runs, stderr = [], []
    deeds: list[dict[str, Any]] = []
    for deeds_of_run in (plan(seed), []):
        steps = 10**6 if deeds_of_run else max(truth.attempts_of(folder)[-1][0].steps) + NEW_STEPS
        began = time.time()
        done, errors = run_job(tmp_path, folder, steps, deeds_of_run)
        runs.append((began, time.time()))
        stderr.append(errors)
        deeds += done
    assert [deed["deed"] for deed in deeds] == [deed["deed"] for deed in plan(seed)], stderr[0]
    done = answer(tmp_path, "goodput", "elastic", "--format", "json")
    assert done.returncode == 0, done.stderr
    return Life(truth.attempts_of(folder), deeds, runs, stderr, json.loads(done.stdout))


def run_job(tmp_path: Path, folder: Path, steps: int, deeds: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Run the job and its killer until the job ends; return what the killer did, and the job's stderr."""
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", "6"]
    options = ["--folder", str(folder), "--steps", str(steps), "--save-every", "6", "--ballast-mb", "100"]
    script = str(REPOSITORY / "examples" / "elastic_ddp.py")
    job = subprocess.Popen(
        [str(BIN / "tachoscope"), "run", "--job", "elastic", "--", *torchrun, script, *options],
        env=environment(tmp_path, TACHOSCOPE_HANG_SECONDS=str(HANG_SECONDS)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    killer = subprocess.Popen(
        [sys.executable, elastic_killer.__file__, json.dumps(deeds), str(folder), str(job.pid)], stdout=subprocess.PIPE, text=True
    )
    try:
        errors = job.communicate(timeout=200)[1]
        assert job.returncode == 0, errors
    finally:
        job.terminate()  # both have ended, unless something went wrong
        killer.terminate()
    return [json.loads(line) for line in killer.communicate()[0].splitlines()], errors


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.bar), pytest.param(2, marks=pytest.mark.bar)])
def life(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Life:
    return live(tmp_path_factory.mktemp("life"), request.param)


def near(seconds: float) -> Any:
    """Within 2 % or 1 s, whichever is more."""
    return pytest.approx(seconds, rel=0.02, abs=1.0)


def last_word(ranks: list[truth.RankTruth]) -> float:
    """Return the last Unix time in the log of an attempt."""
    return max(time for rank in ranks for time in (*rank.steps.values(), *rank.saved.values()))


def test_each_attempt_ended_as_the_killer_ended_it(life: Life) -> None:
    endings = {"kill": "killed", "hang": "hung", "preempt": "preempted"}
    attempts = life.report["life"]["attempts"]

    assert [attempt["ended"] for attempt in attempts] == [*(endings[deed["deed"]] for deed in life.deeds), "completed"]
    assert [attempt["ranks"] for attempt in attempts] == [RANKS] * len(life.attempts)


def test_steps_are_numbered_over_the_whole_job_and_those_done_again_are_counted_exactly(life: Life) -> None:
    attempts = life.report["life"]["attempts"]

    for number, attempt in enumerate(attempts):
        done = {step for rank in life.attempts[number] for step in rank.steps}
        assert (attempt["first_step"], attempt["last_step"]) == (min(done), max(done))
        assert attempt.get("redone", 0) == len(truth.redone(life.attempts, number))
    assert life.report["life"]["new_steps"] == max(life.attempts[-1][0].steps)
    assert len(life.attempts[-1][0].steps) == NEW_STEPS


def test_lost_work_is_what_was_done_again_and_what_was_cut_off(life: Life) -> None:
    again = sum(truth.redone_seconds(life.attempts, number) for number in range(len(life.attempts)))
    cut_off = sum(
        truth.unfinished_seconds(life.attempts[number], deed["gone"])
        for number, deed in enumerate(life.deeds)
        if deed["deed"] == "kill"
    )

    assert life.report["ledgers"][0]["states"]["lost_work"] == near(again + cut_off)


def test_hung_time_is_from_the_last_step_until_the_processes_were_gone(life: Life) -> None:
    number = next(number for number, deed in enumerate(life.deeds) if deed["deed"] == "hang")

    assert life.report["ledgers"][0]["states"]["hung"] == near(
        truth.unfinished_seconds(life.attempts[number], life.deeds[number]["gone"])
    )


def test_restoring_took_what_the_job_says(life: Life) -> None:
    assert life.report["ledgers"][0]["states"]["restore"] == near(truth.restore_seconds(life.attempts))
    for recovery in life.recoveries:
        ranks = life.attempts[recovery["attempt"] + 1]
        took = max(rank.restore_seconds for rank in ranks)
        assert recovery["restore_seconds"] == (near(took) if took else None)  # nothing was saved yet: not 0


def test_detection_is_from_the_kill_until_all_processes_of_the_attempt_were_gone(life: Life) -> None:
    for recovery in life.recoveries:
        deed = life.deeds[recovery["attempt"]]
        if deed["deed"] == "kill":
            assert recovery["rank"] == deed["rank"]
            assert recovery["failed_at"] - deed["time"] == near(0.0)
            assert recovery["detect_seconds"] == near(max(deed["gone"].values()) - deed["time"])
        elif deed["deed"] == "hang":
            assert recovery["rank"] == deed["rank"]
            assert recovery["detect_seconds"] == near(max(deed["gone"].values()) - deed["time"])


def test_a_recovery_ends_with_the_first_step_that_was_not_done_before(life: Life) -> None:
    for recovery in life.recoveries:
        number = recovery["attempt"]
        first_new, lost_steps = truth.recovered(life.attempts, number)
        parts = ("detect", "reschedule", "rendezvous", "initialise", "restore", "redo")

        assert recovery["lost_steps"] == lost_steps
        deed = life.deeds[number]
        # A job that leaves after a notice works on until it is gone.
        left = deed["deed"] == "preempt"
        assert not left or last_word(life.attempts[number]) <= recovery["failed_at"] <= max(deed["gone"].values())
        assert recovery["total_seconds"] == near(first_new - (recovery["failed_at"] if left else deed["time"]))
        assert sum(recovery[f"{part}_seconds"] or 0.0 for part in parts) <= recovery["total_seconds"] + 1.0


def test_the_notice_was_answered_by_a_checkpoint_in_time(life: Life) -> None:
    deed = life.deeds[-1]
    (notice,) = life.report["life"]["notices"]
    left = life.attempts[len(life.deeds) - 1]
    saved = max(time for rank in left for time in rank.saved.values())

    assert notice["source"] == "sigterm"
    assert notice["in_time"]
    assert saved > deed["time"]
    assert notice["saved_seconds"] == near(saved - deed["time"])
    # The probe's last word comes when the interpreter ends, and the process is gone some time later.
    assert last_word(left) <= deed["time"] + notice["ended_seconds"] <= max(deed["gone"].values())


def test_the_states_sum_to_the_time_of_both_runs(life: Life) -> None:
    ledger = life.report["ledgers"][0]
    allocated = RANKS * sum(ended - began for began, ended in life.runs)

    assert life.report["life"]["denominator"] == "launcher"
    assert sum(ledger["states"].values()) == pytest.approx(ledger["wall_seconds"], rel=1e-6)
    # tachoscope's own start and end, before and after its records, are in no rank's time.
    assert 0.93 * allocated <= ledger["wall_seconds"] <= allocated


def test_unexplained_is_hardly_more_than_the_end_of_each_run_after_its_last_step(life: Life) -> None:
    ledger = life.report["ledgers"][0]
    ends = [last_word(life.attempts[-2]), last_word(life.attempts[-1])]
    shutting_down = RANKS * sum(ended - last for last, (_, ended) in zip(ends, life.runs, strict=True))

    assert ledger["states"].get("unexplained", 0.0) <= shutting_down + 0.02 * ledger["wall_seconds"]
    assert all(begin["end"] <= after["start"] for begin, after in pairwise(life.report["life"]["attempts"]))


def test_the_user_is_told_of_the_hang_while_it_lasts(life: Life) -> None:
    deed = next(deed for deed in life.deeds if deed["deed"] == "hang")

    assert f"rank {deed['rank']}" in "\n".join(line for line in life.stderr[0].splitlines() if line.startswith("tachoscope:"))
