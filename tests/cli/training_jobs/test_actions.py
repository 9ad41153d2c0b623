"""What a supervisor does beside restarts: nothing unless configured, within its budget, and each time with a line in the log."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_cli.launcher.checkpoint_interval import SAVES, CheckpointInterval, IntervalSettings
from tachoscope_cli.training_jobs.bad_shards import BadShard, action_of, bad_shard
from tachoscope_cli.training_jobs.checkpoint_plan import plan
from tachoscope_core.jobs.checkpoint_plan import INTERVAL_VARIABLE, CheckpointPlan, Decision
from tachoscope_core.jobs.checkpoint_plan import VARIABLE as PLAN_VARIABLE
from tachoscope_core.jobs.submitted_jobs import Action, SubmittedJob, TrainingJobStatus
from tachoscope_core.jobs.training_job import ActionPolicy, TrainingJob
from tachoscope_core.records import records
from tachoscope_core.report.failures import Failure
from tachoscope_core.report.report import Source
from tachoscope_core.storage.store import Store

from .test_supervisor import Jobs


class Saves:
    """Saves of rank 0, ten seconds apart, as the records of an attempt tell them."""

    def __init__(self, plan: str, **settings: float) -> None:
        self.log: list[Action] = []
        self._time = 0.0
        if plan:
            CheckpointPlan(plan).decide(1, Decision(due=False, next_step=2, interval_steps=50))  # the ranks ask
        said = IntervalSettings(plan=plan, attempt=0, **{"budget": 10, **settings})  # type: ignore[arg-type]
        self._interval = CheckpointInterval(said, self.log.append)

    def take(self, blocking: float, count: int = SAVES) -> None:
        for _ in range(count):
            self._time += 10.0
            saved = records.CheckpointSaved(
                job="j",
                rank=0,
                local_rank=0,
                attempt=0,
                host="h",
                writer="w",
                seq=0,
                monotonic_ns=0,
                time=self._time,
                step=1,
                blocking_seconds=blocking,
            )
            self._interval.add_record(saved)


def test_while_saves_are_slow_the_interval_is_longer_and_the_log_says_the_risk(tmp_path: Path) -> None:
    saves, plan = Saves(str(tmp_path)), CheckpointPlan(str(tmp_path))
    saves.take(0.2, 20)
    assert not saves.log

    saves.take(1.8)
    factors = [plan.factor()]
    for blocking in (5.0, 5.0, 0.2, 0.2):
        saves.take(blocking, 1)
        factors.append(plan.factor())

    assert factors == [3.0, 3.0, 3.0, 3.0, 1.0], "five saves lengthen the interval, two end that"
    assert "9.0 times slower" in saves.log[0].text
    assert "a failure undoes 10 s more" in saves.log[0].text
    os.unlink(saves.log[0].undo.removeprefix("rm "))
    assert plan.factor() == 1.0


def test_slow_saves_that_cost_nothing_change_nothing(tmp_path: Path) -> None:
    saves = Saves(str(tmp_path))
    saves.take(0.001)
    saves.take(0.02, 10)

    assert not saves.log


def test_saves_that_scatter_by_a_factor_of_three_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(1)
    attempts = [Saves(str(tmp_path)) for _ in range(200)]
    for saves in attempts:
        for _ in range(24):
            saves.take(chance.uniform(1.0, 3.0), 1)

    assert not [action for saves in attempts for action in saves.log]


def test_after_some_failures_the_interval_is_the_best_one(tmp_path: Path) -> None:
    saves = Saves(str(tmp_path), failures=5, life_seconds=300.0)

    saves.take(5.0)

    assert CheckpointPlan(str(tmp_path)).factor() == pytest.approx(best_interval(SaveCost(5.0), 60.0) / 10.0, abs=0.01)


def test_a_dry_run_and_a_used_up_budget_only_say_what_they_would_do(tmp_path: Path) -> None:
    dry, used = Saves(""), Saves(str(tmp_path), budget=0)
    for saves in (dry, used):
        saves.take(0.2)
        saves.take(1.8, 3 * SAVES)

    assert [(one.applied, one.undo) for one in (*dry.log, *used.log)] == [(False, "")] * 2
    assert "(dry run)" in dry.log[0].text
    assert "the budget is used up" in used.log[0].text
    assert CheckpointPlan(str(tmp_path)).factor() == 1.0


def test_of_a_job_that_does_not_ask_the_log_says_that_nothing_was_changed(tmp_path: Path) -> None:
    saves = Saves(str(tmp_path))
    (tmp_path / "step-1").unlink()

    saves.take(0.2)
    saves.take(1.8)

    assert [one.applied for one in saves.log] == [False]
    assert "does not call tachoscope.checkpoint_due" in saves.log[0].text


# Reads five shards; one of them raises, unless it is on the list.
READER = """
import pathlib, tachoscope
for number in range(5):
    path = str(pathlib.Path(f"part-{number}").resolve())
    if path not in tachoscope.quarantined():
        with tachoscope.shard(path):
            float(pathlib.Path(path).read_text())
    tachoscope.step()
"""


def test_a_shard_that_ends_an_attempt_is_quarantined_before_the_next(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    (tmp_path / "train.py").write_text(READER)
    for number in range(5):
        (tmp_path / f"part-{number}").write_text("bad" if number == 3 else "1")
    jobs.write(restart="{delay: 0s, most_attempts: 2}\nactions: {quarantine_shards: apply}")

    jobs.call("submit", "training_job.yaml", "--wait")

    status = jobs.status()
    assert (status["state"], len(status["attempts"]), status["needs_review"]) == ("completed", 2, True)
    assert "ValueError" in jobs.call("store", "quarantine", "small").stdout
    assert jobs.call(*status["actions"][0]["undo"].split()[1:]).returncode == 0


SHARD = BadShard("/data/part-3", rank=1, attempt=0, time=9.0, error="ReadError", listed=False)


def _decided(shard: BadShard, mode: str = "apply", most: int = 1, before: tuple[Action, ...] = ()) -> Action | None:
    policy = ActionPolicy(quarantine_shards=mode, most_actions=most)  # type: ignore[arg-type]
    job = TrainingJob(name="x", engine="local", command=("train",), working_directory="/", actions=policy)
    status = TrainingJobStatus(submitted=SubmittedJob(job=job, key="k", submitted_at=0.0), actions=before)
    return action_of(status, 0, shard, 10.0)


def test_a_shard_is_listed_only_if_that_is_configured_can_help_and_is_in_the_budget() -> None:
    done = _decided(SHARD)

    assert done is not None
    assert (done.applied, done.undo) == (True, "tachoscope store quarantine x --release /data/part-3")
    assert _decided(SHARD, "off") is None
    assert _decided(replace(SHARD, listed=True)) is None, "the loader does not skip it"
    assert _decided(replace(SHARD, listed=True), before=(done,)) == done, "a supervisor was killed between the list and the attempt"
    for action in (_decided(SHARD, "dry_run"), _decided(SHARD, most=0)):
        assert action is not None
        assert (action.applied, action.undo) == (False, "")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"rank": 0}, False),
        ({"exception": "torch.OutOfMemoryError"}, False),
        ({"cause": "killed"}, False),
        ({"time": 100.0}, False),
        ({"attempt": 1}, False),
    ],
)
def test_a_shard_is_behind_a_failure_only_of_its_rank_its_error_and_its_time(changes: dict[str, object], found: bool) -> None:
    said = {"attempt": 0, "time": 9.5, "rank": 1, "cause": "exception", "exception": "tarfile.ReadError"}
    failure = Failure(**{**said, **changes})  # type: ignore[arg-type]
    row = records.ShardFailed(
        job="x",
        rank=1,
        local_rank=1,
        attempt=0,
        host="h",
        writer="w",
        seq=0,
        time=9.0,
        monotonic_ns=0,
        shard="p",
        error="ReadError",
    )

    assert (bad_shard(JobRecords("x", Source(path=""), shard_failures=[row]), failure, ()) is not None) is found


def _status(directory: Path, mode: str) -> TrainingJobStatus:
    policy = ActionPolicy(checkpoint_interval=mode)  # type: ignore[arg-type]
    job = TrainingJob(name="x", engine="local", command=("train",), working_directory=str(directory), actions=policy)
    return TrainingJobStatus(submitted=SubmittedJob(job=job, key="k", submitted_at=0.0))


def test_an_attempt_has_a_plan_while_it_runs_and_a_signal_of_slurm_is_its_notice(tmp_path: Path) -> None:
    work, store = tmp_path / "work", Store(str(tmp_path / "store"))
    work.mkdir()
    with plan(_status(work, "apply"), 0, store) as variables:
        (left,) = work.iterdir()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert CheckpointPlan(variables[PLAN_VARIABLE]).end_announced()
    assert not list(work.iterdir())

    left.mkdir()  # of an attempt that was killed
    with plan(_status(work, "apply"), 1, store):
        assert [path.name for path in work.iterdir()] == [left.name.removesuffix("0") + "1"]


def test_without_the_action_an_attempt_has_no_plan_and_its_ranks_none_in_a_dry_run(tmp_path: Path) -> None:
    for mode, names in (("off", []), ("dry_run", [INTERVAL_VARIABLE])):
        with plan(_status(tmp_path, mode), 0, Store(str(tmp_path / "store"))) as variables:
            assert list(variables) == names
            assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_does_not_keep_an_attempt_from_running(tmp_path: Path) -> None:
    with plan(_status(tmp_path / "nowhere", "apply"), 0, Store(str(tmp_path / "store"))) as variables:
        assert not variables
