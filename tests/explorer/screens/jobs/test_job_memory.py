"""Memory on the page of a job."""

from __future__ import annotations

from pathlib import Path

from exploring import open_page, words
from exploring_job import even, put
from making import envelope
from tachoscope_core.records import records

MIB = 1 << 20


def samples(growing: bool) -> bytes:
    lines = []
    for number in range(30):
        held = 100 * MIB + growing * number * 10 * MIB
        group = records.ControlGroupMemory(path="/job", limit_bytes=400 * MIB, anonymous_bytes=held)
        row = records.MemorySampled(
            **envelope(0, 1000 + number, time=1.7e9 + number / 3),
            step=number,
            process=records.ProcessMemory(pid=100, anonymous_bytes=held),
            group=group,
            total_bytes=9000 * MIB,
            growth={"train.py:41": 9e6} if growing and number == 20 else {},
            device=records.DeviceMemory(allocated_bytes=90 * held, reserved_bytes=100 * held, total_bytes=80 << 30),
        )
        lines.append(records.encode(row))
    return b"".join(lines)


def kill() -> bytes:
    who = {"failed_rank": 0, "failed_writer": envelope(0)["writer"], "failed_pid": 100, "killed_time": 1.7e9 + 10.5}
    limit = {"limit_of": "/job", "limit_bytes": 400 * MIB, "sources": ["kernel_log"]}
    launcher = envelope(-1, 0, writer="90000000-0000-4000-8000-000000000000", time=1.7e9 + 10.5)
    return records.encode(records.OutOfMemory(**launcher, **who, **limit))


def device_failure() -> bytes:
    """Return that the allocator of rank 0 raised, with the line and what it held."""
    block = records.LiveBlocks(line="model.py:7", bytes=30 << 30, count=4, stack=["model.py:7 forward", "train.py:41 step"])
    who = {"place": "device", "failed_rank": 0, "failed_writer": envelope(0)["writer"], "location": "model.py:7 forward"}
    device = records.DeviceMemory(allocated_bytes=34 << 30, reserved_bytes=38 << 30, total_bytes=80 << 30)
    own = envelope(0, 2000, time=1.7e9 + 10.5)
    return records.encode(
        records.OutOfMemory(**own, **who, killed_time=1.7e9 + 10.5, requested_bytes=4 << 30, device=device, largest_blocks=[block])
    )


def test_where_an_accelerator_is_full_its_own_memory_is_drawn_and_the_hosts_is_folded(tmp_path: Path) -> None:
    put(tmp_path, "planted", even(1, 60) + samples(growing=True) + device_failure())
    shown = open_page("job", tmp_path, job="planted", part="memory")

    assert not shown.exception
    assert "asked for 4.0 GiB" in words(shown).replace("\\", "")
    assert any("accelerator in GiB" in one.proto.spec for one in shown.get("plotly_chart"))
    assert not any("memory in" in one.proto.spec for one in shown.get("plotly_chart"))
    assert {"Largest live blocks on the accelerator"} < {one.label for one in shown.expander}


def test_a_kill_is_told_with_its_line_and_without_one_the_curves_are_in_a_tab(tmp_path: Path) -> None:
    put(tmp_path, "planted", even(1, 60) + samples(growing=True) + kill())
    shown = open_page("job", tmp_path, job="planted", part="memory")
    told = words(shown)

    assert not shown.exception
    assert "Out of memory" in told
    assert "reached its limit of 400" in told  # Markdown has the dot escaped
    assert "train.py:41" in told
    assert any("memory in MiB" in one.proto.spec for one in shown.get("plotly_chart"))

    put(tmp_path / "well", "planted", even(1, 60) + samples(growing=False))
    shown = open_page("job", tmp_path / "well", job="planted")
    assert not shown.exception
    assert not shown.get("plotly_chart")
    assert "Memory" in [one.label for one in shown.tabs]
