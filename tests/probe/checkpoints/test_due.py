"""Whether a checkpoint is due: the job's own interval, unless a plan changes it, and then at the same steps on all ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tachoscope
from tachoscope.checkpoints.due import CheckpointDue
from tachoscope.preemption.poll import NoticePoll
from tachoscope_core.jobs.checkpoint_plan import VARIABLE, CheckpointPlan

EVERY = 40
# Goes through steps at a pace of its own, until the wish and the notice have each had time to be seen.
RANK = """
import random, sys, time
from tachoscope.checkpoints import due
from tachoscope.preemption.poll import NoticePoll
due.LOOK_SECONDS = 0.01
asked = due.CheckpointDue(NoticePoll())
for step in range(1, 1201):
    time.sleep(random.random() * 0.002)
    if asked.ask(step, 40):
        print(step, flush=True)
"""


def _asked(steps: range) -> list[int]:
    asked = CheckpointDue(NoticePoll())
    return [step for step in steps if asked.ask(step, EVERY)]


def test_without_a_plan_the_interval_is_the_jobs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)

    assert _asked(range(130)) == [40, 80, 120]
    assert _asked(range(81, 130)) == [120]
    assert _asked(range(0, 200, 7)) == [42, 84, 126, 168]
    with pytest.raises(ValueError, match="every=0"):
        tachoscope.checkpoint_due(1, every=0)


def test_ranks_that_look_at_different_moments_save_at_the_same_steps(tmp_path: Path) -> None:
    plan = CheckpointPlan(str(tmp_path))
    environ = {**os.environ, VARIABLE: str(tmp_path)}
    ranks = [subprocess.Popen([sys.executable, "-c", RANK], env=environ, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    deadline = time.monotonic() + 60.0
    while not list(tmp_path.glob("step-*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    plan.wish(2.0)
    plan.announce_end("SIGUSR1")

    said = [rank.communicate(timeout=120)[0].split() for rank in ranks]

    assert said[0] == said[1] == said[2]
    assert len(said[0]) > 1200 / EVERY


def test_a_wish_lengthens_the_interval_and_a_notice_wants_a_save_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    plan, clock = CheckpointPlan(str(tmp_path)), iter(range(10**6))
    asked = CheckpointDue(NoticePoll(), lambda: float(next(clock)))
    plan.wish(2.0)
    assert [step for step in range(1, 101) if asked.ask(step, EVERY)] == [80]

    plan.announce_end("SIGUSR1")

    assert [step for step in range(101, 125) if asked.ask(step, EVERY)] == [101, 111, 121]


def test_a_plan_that_is_gone_leaves_the_interval_that_was_agreed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    clock = iter(range(10**6))
    asked = CheckpointDue(NoticePoll(), lambda: float(next(clock)))
    CheckpointPlan(str(folder)).wish(2.0)
    assert not asked.ask(1, EVERY)
    folder.rename(tmp_path / "elsewhere")

    assert [step for step in range(2, 200) if asked.ask(step, EVERY)] == [80, 160]
