"""The file for speedscope, by its own rules: https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from recorded import recorded
from tachoscope_analyzers.trace.export import speedscope
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_core.errors import TachoscopeError


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class Shared(msgspec.Struct, forbid_unknown_fields=True):
    frames: list[Frame]


class Event(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["O", "C"]
    frame: int
    at: float


class Profile(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["evented"]
    name: str
    unit: Literal["milliseconds"]
    startValue: float  # noqa: N815
    endValue: float  # noqa: N815
    events: list[Event]


class File(msgspec.Struct, forbid_unknown_fields=True):
    schema: Literal["https://www.speedscope.app/file-format-schema.json"] = msgspec.field(name="$schema")
    exporter: str
    name: str
    activeProfileIndex: int  # noqa: N815
    shared: Shared
    profiles: list[Profile]


def call(name: str, start: float, duration: float, tid: int = 1) -> dict[str, object]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": start, "dur": duration}


def exported(folder: Path, *events: dict[str, object], most_calls: int = 1000) -> File:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": list(events)}))
    return msgspec.json.decode(speedscope.encoded(read(path), "planted", most_calls=most_calls), type=File)


def must_be_sound(file: File) -> None:
    """Times never fall, and each close is of the frame that was opened last."""
    for profile in file.profiles:
        times = [event.at for event in profile.events]
        assert times == sorted(times)
        assert profile.startValue <= times[0]
        assert times[-1] <= profile.endValue
        stack: list[int] = []
        for event in profile.events:
            if event.type == "O":
                stack.append(event.frame)
            else:
                assert stack.pop() == event.frame
        assert stack == []


def seconds_in(file: File, name: str) -> float:
    """Return the milliseconds between opens and closes of a frame."""
    (frame,) = [index for index, one in enumerate(file.shared.frames) if one.name == name]
    return sum((event.at if event.type == "C" else -event.at) for p in file.profiles for event in p.events if event.frame == frame)


def test_planted_calls_come_back_nested_with_their_times(tmp_path: Path) -> None:
    file = exported(tmp_path, call("step", 1000, 100), call("mm", 1010, 30), call("add", 1040, 5), call("mm", 1000, 7, tid=2))

    must_be_sound(file)
    assert [len(profile.events) for profile in file.profiles] == [6, 2]
    assert seconds_in(file, "step") == pytest.approx(0.1)
    assert seconds_in(file, "mm") == pytest.approx(0.037)
    opens = [file.shared.frames[event.frame].name for event in file.profiles[0].events if event.type == "O"]
    assert opens == ["step", "mm", "add"]


def test_calls_that_overlap_without_nesting_end_with_the_one_they_began_in(tmp_path: Path) -> None:
    file = exported(tmp_path, call("outer", 0, 50), call("late", 40, 30), call("next", 60, 5))

    must_be_sound(file)
    assert seconds_in(file, "late") == pytest.approx(0.010)


def test_of_too_many_calls_the_longest_stay_and_the_name_says_so(tmp_path: Path) -> None:
    file = exported(tmp_path, *(call(f"op{number}", 100 * number, number + 1) for number in range(23)), most_calls=5)

    must_be_sound(file)
    assert {frame.name for frame in file.shared.frames} == {f"op{number}" for number in range(18, 23)}
    assert file.name == "planted (the longest 5 of 23 calls)"


def test_device_work_and_a_trace_without_calls_leave_no_thread(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"stream": 7, "device": 0}}

    assert exported(tmp_path, kernel).profiles == []


@pytest.mark.parametrize("name", ["hta/a100_nccl_2rank_rank0", "tracelens/h100_bert_small", "dlrm8/rank-0"])
def test_recorded_traces_give_sound_files(name: str) -> None:
    file = msgspec.json.decode(speedscope.encoded(read(recorded(name)), name), type=File)

    must_be_sound(file)
    assert file.profiles


def test_a_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [call("mm", 1, 2)]}))

    with pytest.raises(TachoscopeError, match="could not write"):
        speedscope.write(read(path), tmp_path / "none" / "out.json", "planted")
