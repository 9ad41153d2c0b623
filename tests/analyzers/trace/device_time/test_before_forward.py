"""Pauses of the main thread before the forward pass are waiting for input, if they come step after step."""

from pathlib import Path

import pytest

from planting import BACKWARD, Planted
from tachoscope_analyzers.trace.device_time.ledger import host_states
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.losses.by_rank import rank_losses

MS = 1_000_000
STEP = 100 * MS


def training(fetching: list[int], *, stalled: int = 0) -> Planted:
    """Steps of 100 ms and more on CPU: fetching, a forward pass of 20 ms, a stall, a backward pass of 30 ms, an optimizer step."""
    job, begin = Planted(), 1_000 * MS
    for number, pause in enumerate(fetching):
        forward, backward = begin + pause, begin + pause + 20 * MS + stalled
        job.op("aten::zero_", begin, 10_000)
        job.op("aten::randn", forward - 100_000, 100_000)
        job.op("aten::linear", forward, 20 * MS, **{"Sequence number": number, "Fwd thread id": 0})
        job.op("AddmmBackward0", backward, 30 * MS, tid=BACKWARD, **{"Sequence number": number, "Fwd thread id": 1})
        job.op("aten::add_", backward + 30 * MS, 10 * MS)
        length = backward + 40 * MS - begin
        job.step(number, begin, length)
        begin += length
    return job


def seconds(tmp_path: Path, job: Planted) -> dict[str, float]:
    return {state: time.total / MS for state, time in host_states(TraceView(job.read(tmp_path))).items() if time.total >= MS}


def test_a_pause_before_each_forward_pass_is_input(tmp_path: Path) -> None:
    found = seconds(tmp_path, training([40 * MS] * 6))
    assert found["data_wait"] == pytest.approx(6 * 40, abs=1) and "host_wait" not in found
    slugs = {loss.slug for loss in rank_losses(TraceView(training([40 * MS] * 6).read(tmp_path, "again.json"))).losses}
    assert "input_workers" in slugs and "host_pause" not in slugs


def test_a_pause_behind_the_forward_pass_is_none(tmp_path: Path) -> None:
    found = seconds(tmp_path, training([300_000] * 6, stalled=40 * MS))
    assert found["host_wait"] == pytest.approx(6 * 40, abs=2) and "data_wait" not in found


def test_what_comes_before_one_forward_pass_of_five_is_no_input(tmp_path: Path) -> None:
    found = seconds(tmp_path, training([200 * MS, *[300_000] * 4] * 2))
    assert found["host_wait"] == pytest.approx(400, abs=2) and "data_wait" not in found


def test_of_an_unusual_pause_the_usual_part_is_input(tmp_path: Path) -> None:
    found = seconds(tmp_path, training([300 * MS, *[20 * MS] * 4]))
    assert found == {
        "compute": pytest.approx(300, abs=1),
        "data_wait": pytest.approx(100, abs=1),
        "host_wait": pytest.approx(280, abs=1),
    }
