"""Memory in sentences and as a picture, for the terminal and the page."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tachoscope_core.report.memory import LineBytes, MemoryCurve, MemoryGrowth, MemoryKill, MemoryReport, SegmentBytes, UsedCurve
from tachoscope_core.report.report import Evidence, Finding, Ledger, Report, StepSeconds, Window
from tachoscope_core.report.taxonomy import FULL_IN
from tachoscope_show.report import html as render_html
from tachoscope_show.report import text as render_text
from tachoscope_show.report.memory_picture import picture
from tachoscope_show.report.memory_words import lines
from tachoscope_show.report.verdict_words import first_lines

MIB = 1 << 20
GROWTH = MemoryGrowth(
    part="process", ranks=[1], bytes=300 * MIB, since_time=10.0, since_step=40, bytes_per_step=2.0 * MIB,
    bytes_per_second=MIB / 60, low_bytes_per_second=1.0, high_bytes_per_second=2.0,
    lines=[LineBytes(line="train.py:41", bytes=250 * MIB)],
)  # fmt: skip
KILL = MemoryKill(
    place="host", victim="rank", rank=1, host="node-1", pid=7, time=20.0, step=190, limit_of="/job", limit_bytes=400 * MIB,
    held_bytes=310 * MIB, sources=["kernel_log"],
)  # fmt: skip


def finding(class_: str, **values: Any) -> Finding:
    made = Finding(
        class_=class_, severity="warning", seconds_per_step=0.0, share=0.0, share_ci=(0.0, 0.0), ranks=[1], confidence=0.9,
        runner_up=None, evidence=[], speedup_if_fixed=1.0, action="do this", runbook="",
    )  # fmt: skip
    return msgspec.structs.replace(made, **values)


def report(*found: Finding, **values: Any) -> Report:
    made = Report(
        job="planted", window=Window(start=0.0, end=10.0, steps=100), ranks=2, sources=[],
        step_seconds=StepSeconds(mean=0.4, p50=0.4, p95=0.4, p99=0.4),
        ledgers=[Ledger(unit="rank", wall_seconds=1.0, states={"compute": 1.0})], goodput=0.5,
        findings=list(found), not_measured=[],
    )  # fmt: skip
    return msgspec.structs.replace(made, **values)


def memory(**values: Any) -> MemoryReport:
    curve = MemoryCurve(
        rank=1, times=[0.0, 10.0, 19.0], steps=[0, 90, 180], process=[100 * MIB, 200 * MIB, 300 * MIB], workers=[0, 0, 0],
        shared=[0, 0, 0], device_allocated=[0, 0, 0], device_reserved=[0, 0, 0],
    )  # fmt: skip
    used = UsedCurve(limit_of="/job", limit_bytes=400 * MIB, times=curve.times, used=curve.process)
    return msgspec.structs.replace(MemoryReport(ranks=[curve], used=used, growth=GROWTH, kills=[KILL]), **values)


def killed() -> Report:
    found = finding("out_of_memory", where="train.py:41", severity="critical")
    return report(found, memory=memory())


def test_a_kill_is_told_with_who_whose_limit_what_grew_and_the_line() -> None:
    said = lines(memory())

    assert said == [
        "the kernel killed rank 1, which held 310.0 MiB, after step 190: the control group /job reached its limit of 400.0 MiB",
        "memory of the training process of rank 1 grew by 300.0 MiB since step 40: 60.0 MiB an hour, 2.0 MiB a step",
        "allocated there and not freed: train.py:41: 250.0 MiB",
    ]
    assert first_lines(killed()).verdict == "Out of memory: memory on rank 1 grew (train.py:41) until the limit was reached."


def test_before_it_is_full_the_time_that_is_left_is_in_the_first_line() -> None:
    full = Evidence(signal=FULL_IN, value=2400.0, unit="seconds")
    soon = report(finding("out_of_memory", cause="soon", evidence=[full]))
    growing = memory(kills=[], growth=msgspec.structs.replace(GROWTH, full_seconds=2400.0))

    assert first_lines(soon).verdict == "Memory on rank 1 grows and will be full in about 40 min."
    assert lines(growing)[0].endswith("2.0 MiB a step; full in about 40 min")
    assert lines(memory(kills=[])) == [], "what rose and will not fill its limit is not told"


def test_an_accelerator_without_memory_is_told_with_what_was_asked_for_and_what_is_fragmented() -> None:
    device = msgspec.structs.replace(
        KILL, place="device", limit_of="NVIDIA H200", location="train.py:12", requested_bytes=64 * MIB, held_bytes=900 * MIB,
        fragmented_bytes=200 * MIB, largest_blocks=[LineBytes(line="model.py:3", bytes=500 * MIB, count=12)],
        free_segments=[SegmentBytes(reserved_bytes=300 * MIB, allocated_bytes=200 * MIB, largest_free_bytes=40 * MIB)],
        free_segment_count=7,
    )  # fmt: skip
    told, free, block = lines(memory(kills=[device], growth=None))

    assert told == (
        "rank 1 asked for 64.0 MiB of NVIDIA H200 at train.py:12: 900.0 MiB were allocated, "
        "and 200.0 MiB were reserved and not allocated"
    )
    assert free == "fragmented: 200.0 MiB lie free in 7 segments of the allocator, at most 40.0 MiB of it in one piece"
    assert block == "live block on the accelerator: model.py:3: 500.0 MiB in 12 blocks"


def test_every_curve_lies_within_the_picture_and_holds_its_last_sample_as_long_as_it_is_known() -> None:
    """Shared pages count for each process, so that a rank may seem to hold more than the limit; and ranks begin at other times."""
    early = MemoryCurve(
        rank=0, times=[-500.0, 2.0], steps=[0, 9], process=[900 * MIB, 700 * MIB], workers=[100 * MIB, 0], shared=[0, 0],
        device_allocated=[0, 0], device_reserved=[0, 0],
    )  # fmt: skip
    drawn = picture(memory(ranks=[early, *memory().ranks]))
    assert drawn is not None
    points = {one.name: [tuple(map(float, point.split(","))) for point in one.points.split()] for one in drawn.lines}

    assert all(0.0 <= x <= 1000.0 and 0.0 <= y <= 100.0 for line in points.values() for x, y in line)
    assert drawn.limit_y is not None
    assert all(0.0 <= place <= 1000.0 for place in (drawn.limit_y, *drawn.kills))
    assert points["rank 0"][0][0] == 0.0
    assert points["rank 0"][1][1] == points["rank 0"][0][1], "a value is held until the next sample"
    assert points["rank 1"][-1][0] == 1000.0
    long_ago = picture(memory(used=None, ranks=[early], kills=[msgspec.structs.replace(KILL, time=1002.0)]))
    assert long_ago is not None
    assert float(long_ago.lines[0].points.split()[-1].split(",")[0]) == pytest.approx(1000 * (502 + 150) / 1502, abs=0.1)


def test_terminal_and_page_have_the_section_and_the_page_draws_limit_and_kill() -> None:
    console = Console(file=io.StringIO(), width=200)
    render_text.render(killed(), console)
    page = render_html.render(killed())

    assert "the control group /job reached its limit of 400.0 MiB" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "<h2>Memory</h2>" in page
    assert "<title>limit</title>" in page
    assert "<title>killed</title>" in page
    assert "<h2>Memory</h2>" not in render_html.render(report(finding("host_memory")))
