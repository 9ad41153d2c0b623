"""A training thread that records itself from step to step, and does not disturb a training that does so too."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tachoscope.profiling.recording import LATE_SECONDS, MOST_SECONDS, ProfileRecording
from tachoscope_core.net.kineto_protocol import ProfileOrder

MODEL = torch.nn.Linear(8, 8)


def step() -> None:
    MODEL(torch.randn(4, 8)).sum().backward()


class UnixClock:
    """Unix seconds that pass when a step says so."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def torch_is_as_before() -> Any:
    module = torch.autograd.profiler
    before = [getattr(module, name) for name in ("_prepare_profiler", "_enable_profiler")]
    yield
    assert [getattr(module, name) for name in ("_prepare_profiler", "_enable_profiler")] == before
    assert not module._is_profiler_enabled


def recording(tmp_path: Path, clock: Callable[[], float], seconds: float = 10.0) -> ProfileRecording:
    return ProfileRecording(ProfileOrder(1e9, seconds, str(tmp_path / "trace.json")), clock)


def written(tmp_path: Path) -> dict[str, Any] | None:
    """Return the trace once it is written by the thread that does."""
    for thread in threading.enumerate():
        if thread.name == "tachoscope-profile":
            thread.join(60)
    path = tmp_path / f"trace_{os.getpid()}.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_whole_steps_are_recorded_and_have_the_numbers_of_the_job(tmp_path: Path) -> None:
    clock = UnixClock()
    clock.now -= 5.0
    one, numbers = recording(tmp_path, clock), range(100, 200)
    for number in numbers:
        step()
        one.step_ended(number)
        clock.now += 1.0
        if one.finished:
            break

    found = written(tmp_path)
    assert found is not None
    marks = [event["name"] for event in found["traceEvents"] if event.get("name", "").startswith("ProfilerStep#")]
    assert marks == [f"ProfilerStep#{number}" for number in range(106, 116)]
    assert sum(event.get("name") == "aten::linear" for event in found["traceEvents"]) == 10
    assert found["traceName"].endswith(f"trace_{os.getpid()}.json")


def test_one_step_more_than_wanted_is_recorded_however_long_steps_are(tmp_path: Path) -> None:
    clock = UnixClock()
    one = ProfileRecording(ProfileOrder(1e9, 0.5, str(tmp_path / "trace.json"), steps=3), clock)
    for number in range(20):
        step()
        one.step_ended(number)
        clock.now += 5.0
    found = written(tmp_path)
    assert found is not None
    assert sum(event.get("name", "").startswith("ProfilerStep#") for event in found["traceEvents"]) == 4

    slow = ProfileRecording(ProfileOrder(clock.now, 0.5, str(tmp_path / "slow.json"), steps=3), clock)
    for number in range(3):
        step()
        slow.step_ended(number)
        clock.now += MOST_SECONDS
    assert slow.finished, "two of the three steps take all the time there is"


def test_a_training_that_starts_its_own_profiler_meanwhile_gets_it_and_ours_ends(tmp_path: Path) -> None:
    clock = UnixClock()
    one = recording(tmp_path, clock)
    step()
    one.step_ended(1)
    assert torch.autograd.profiler._is_profiler_enabled
    with torch.profiler.profile() as own:
        step()
        one.step_ended(2)

    assert one.finished
    assert any(event.key == "aten::linear" for event in own.key_averages())
    assert written(tmp_path) is None


def test_while_the_training_profiles_itself_none_begins(tmp_path: Path) -> None:
    clock = UnixClock()
    one = recording(tmp_path, clock)
    with torch.profiler.profile() as own:
        for number in range(3):
            step()
            one.step_ended(number)
    assert not one.finished
    assert sum(event.count for event in own.key_averages() if event.key == "aten::linear") == 3

    clock.now += LATE_SECONDS + 1
    one.step_ended(4)
    assert one.finished, "nobody waits for it any longer"
    assert written(tmp_path) is None


def test_one_that_cannot_be_written_is_told_and_the_training_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = UnixClock()
    one = ProfileRecording(ProfileOrder(1e9, 1.0, str(tmp_path / "gone" / "trace.json")), clock)
    one.step_ended(1)
    clock.now += 2.0
    step()
    one.step_ended(2)

    assert one.finished
    assert written(tmp_path) is None


def test_an_end_in_the_middle_drops_what_was_recorded(tmp_path: Path) -> None:
    one = recording(tmp_path, time.time)
    one.step_ended(1)
    one.end()

    assert one.finished
    assert written(tmp_path) is None
