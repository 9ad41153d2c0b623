from __future__ import annotations

import gzip
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from independent import Independent, independent, nanoseconds
from planting import Planted
from recorded import ALL, DATA, recorded
from tachoscope_analyzers.trace.reading.event_kinds import Kind, kind_of
from tachoscope_analyzers.trace.reading.json_brackets import MODULE
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace import Trace
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.native import native

pytestmark = pytest.mark.usefixtures("scanner")
HAS_SCANNER = native(MODULE).module is not None


def planted() -> Planted:
    found = Planted(rank=3, world_size=8)
    for step in range(4):
        start = 1_713_219_600_000_000_000 + step * 1_000_001
        found.step(step, start, 1_000_000)
        found.op('aten::"mm"},\n  {', start + 1001, 500_003, **{"External id": step, "Input Dims": [[2, 3], [3, 4]]})
        found.kernel("void gemm<]}>(float*)", start + 20_001, 300_002, launched=start + 2003, grid=[1, 2, 3])
        found.device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", start + 600_000, 10_000, bytes=4096)
    return found


def same(trace: Trace, truth: Independent) -> None:
    """Assert that a trace holds what the second reader finds, to the nanosecond."""
    assert trace.start.tolist() == truth.starts
    assert trace.events["duration"].tolist() == truth.durations
    assert trace.names(np.arange(len(trace.events))).tolist() == truth.names
    assert [trace.meta.categories[code] for code in trace.events["category"].tolist()] == truth.categories
    tracks = [(track.process, track.thread) for track in trace.meta.tracks]
    assert [tracks[code] for code in trace.events["track"].tolist()] == truth.tracks
    assert trace.events["correlation"].tolist() == truth.argument("correlation")
    assert trace.events["external"].tolist() == truth.argument("External id", "external id")
    on_device = [
        row for row, name in enumerate(truth.categories) if kind_of(name) in {Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.SYNC}
    ]
    assert trace.device["row"].tolist() == on_device
    for column in ("stream", "device", "bytes"):
        expected = truth.argument(column)
        assert trace.device[column].tolist() == [expected[row] for row in on_device]
    assert trace.memory["bytes"].tolist() == [event["args"]["Bytes"] for event in truth.memory]
    assert trace.meta.quality.counts["events"] == truth.count
    assert not trace.meta.quality.cut


@pytest.mark.skipif(not ALL, reason=f"no recorded traces at {DATA} (set TACHOSCOPE_TEST_DATA)")
@pytest.mark.parametrize("name", ALL or ["none"])
def test_every_recorded_trace_is_what_a_second_reader_finds(name: str, scanner: str) -> None:
    if scanner == "python" and HAS_SCANNER:
        return  # that both find the same in recorded traces, test_scan.py shows
    path = recorded(name)
    truth, trace = independent(path), read(path)
    same(trace, truth)
    distributed = truth.outside.get("distributedInfo") or {}
    assert trace.meta.rank == distributed.get("rank")
    assert trace.meta.world_size == distributed.get("world_size")
    assert [device.name for device in trace.meta.devices] == [
        one.get("name", "") for one in truth.outside.get("deviceProperties", [])
    ]
    assert trace.meta.base_nanoseconds == int(truth.outside.get("baseTimeNanoseconds", 0))


def test_files_that_threads_read_at_the_same_time_are_what_each_is_alone(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.json" for number in range(8)]
    for number, path in enumerate(paths):
        found = planted()
        found.op(f"op of {number}", 1_713_219_600_000_000_000, 1000 * number)
        path.write_text(found.text())
    with ThreadPoolExecutor(4) as pool:
        for path, trace in zip(paths, pool.map(read, paths), strict=True):
            same(trace, independent(path))


def test_a_trace_in_nanoseconds_keeps_every_time_stamp() -> None:
    path = recorded("hta/v100_ns_resolution")
    trace = read(path)
    truth = independent(path)
    assert trace.start.tolist() == truth.starts
    assert sum(start % 1000 != 0 for start in truth.starts) > 10_000
    floats = np.rint(np.array(truth.starts) / 1000.0 * 1000).astype(np.int64)
    assert (floats != trace.start).mean() > 0.1, "a trace that floats could hold would test nothing"


@pytest.mark.parametrize("packed", ["plain", "gzip", "zstandard", "members"])
@pytest.mark.parametrize("indent", [None, 1, 2, 4])
def test_layout_and_compression_change_nothing(indent: int | None, packed: str, tmp_path: Path) -> None:
    text = planted().text()
    if indent is not None:
        text = json.dumps(json.loads(text, parse_float=_Text), indent=indent).replace('"<', "").replace('>"', "")
    plain = tmp_path / "plain.json"
    plain.write_text(text)
    data = text.encode()
    half = len(data) // 2
    packs = {
        "plain": data,
        "gzip": gzip.compress(data),
        "zstandard": zstandard.compress(data),
        "members": gzip.compress(data[:half]) + gzip.compress(data[half:]),
    }
    path = tmp_path / "trace"
    path.write_bytes(packs[packed])
    trace = read(path)
    same(trace, independent(plain))
    assert (trace.meta.rank, trace.meta.world_size, trace.meta.writer) == (3, 8, "kineto")
    assert trace.meta.text_bytes == len(data)


class _Text(str):
    """A fraction that `json.dumps` writes between marks, so that no float comes in between."""

    def __new__(cls, text: str) -> _Text:
        return super().__new__(cls, f"<{text}>")


def read_text(folder: Path, text: str | bytes) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return read(path)


def test_compact_json_without_a_line_break_is_read(tmp_path: Path) -> None:
    text = planted().text().replace(',\n  {\n    "ph"', ',{"ph"').replace("\n", " ")
    assert "\n" not in text
    assert len(read_text(tmp_path, text).events) == len(planted().events)


def test_a_text_cut_anywhere_gives_its_whole_events(tmp_path: Path) -> None:
    small = Planted()
    for number in range(2):
        small.op(f"a}},\n  {{{number}", number * 1000, 10, text="]}")
    data = small.text().encode()
    whole = read_text(tmp_path, data)
    found = []
    for length in range(len(data)):
        try:
            trace = read_text(tmp_path, data[:length])
        except TachoscopeError:
            found.append(0)
            continue
        assert trace.start.tolist() == whole.start.tolist()[: len(trace.events)]
        assert trace.meta.quality.cut == (b"\n  ]" not in data[:length])
        found.append(len(trace.events))
    assert found == sorted(found), "a longer beginning never holds less"
    assert set(found) == {0, 1, 2}
    assert found.index(1) == data.index(b"\n  },") + len(b"\n  },") - 1
    assert not whole.meta.quality.cut


def test_a_cut_text_says_how_much_was_lost(tmp_path: Path) -> None:
    trace = read_text(tmp_path, '{"traceEvents": [\n  {"ph": "X", "ts": 1, "dur": 1},\n  {"ph": "X", "ts": 2')
    assert trace.meta.quality.cut
    assert trace.meta.quality.cut_bytes == len('{"ph": "X", "ts": 2')
    assert trace.start.tolist() == [1000]


def test_a_compressed_file_cut_in_the_middle_gives_what_is_whole(tmp_path: Path) -> None:
    many = Planted()
    for number in range(3000):
        many.op(f"op {number * 7919 % 1000}", number * 1000, 10, value=number * 104_729 % 65_537)
    packed = gzip.compress(many.text().encode())
    trace = read_text(tmp_path, packed[: len(packed) // 2])
    assert trace.meta.quality.cut
    assert 100 < len(trace.events) < 3000
    assert trace.start.tolist() == [number * 1000 for number in range(len(trace.events))]


def test_lists_of_events_need_no_object_around_them(tmp_path: Path) -> None:
    event = '{"ph": "X", "ts": 1.5, "dur": 2}'
    assert read_text(tmp_path, f"[{event}, {event}]").start.tolist() == [1500, 1500]
    trace = read_text(tmp_path, f"[\n{event},\n{event},\n")
    assert trace.start.tolist() == [1500, 1500]
    assert not trace.meta.quality.cut, "the format lets writers leave the bracket out"


@pytest.mark.parametrize("text", ["[]", '{"traceEvents": []}', '{"traceEvents": [], "distributedInfo": {"rank": 1}}', "[{}]"])
def test_a_trace_without_events_is_a_trace(text: str, tmp_path: Path) -> None:
    trace = read_text(tmp_path, text)
    assert [len(getattr(trace, name)) for name in ("events", "device", "operators", "collectives", "python", "memory")] == [0] * 6
    assert trace.kind.tolist() == trace.end.tolist() == []


def test_events_are_found_behind_huge_metadata_and_before_a_huge_trailer(tmp_path: Path) -> None:
    big = json.dumps({f"key {number}": "x" * 100 for number in range(100_000)})
    text = (
        f'{{"deviceProperties": [{{"id": 0, "name": "A"}}], "meta": {big}, "traceEvents": [\n  {{"ph": "X", "ts": 1}}\n  ],'
        f'\n  "rest": {big}, "distributedInfo": {{"rank": 5}}}}'
    )
    trace = read_text(tmp_path, text)
    assert trace.start.tolist() == [1000]
    assert (trace.meta.rank, trace.meta.devices[0].name) == (5, "A")


def test_arrays_of_objects_beside_and_within_events_are_not_taken_for_events(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "ts": number, "dur": 1, "args": {"list": [{"ph": "X", "ts": 99}, {"ph": "X", "ts": 98}]}} for number in range(5)
    ]
    tree = {
        "before": [{"ph": "X", "ts": 7}] * 3,
        "traceEvents": events,
        "after": [{"ph": "X", "ts": 8}] * 3,
        "distributedInfo": {"rank": 2},
    }
    for indent in (None, 0, 1, 2):
        trace = read_text(tmp_path, json.dumps(tree, indent=indent))
        assert trace.start.tolist() == [0, 1000, 2000, 3000, 4000]
        assert trace.meta.rank == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(
        st.fixed_dictionaries(
            {"ts": st.decimals(-(10**12), 10**12, places=4) | st.integers(-(10**15), 10**15), "name": st.text(max_size=12)},
            optional={
                "dur": st.decimals(0, 10**9, places=3),
                "pid": st.integers() | st.text(max_size=3),
                "cat": st.sampled_from(["kernel", "x"]),
            },
        ),
        max_size=8,
    ),
    indent=st.sampled_from([None, 0, 2]),
)
def test_any_events_come_back_as_written(events: list[dict[str, Any]], indent: int | None, tmp_path: Path) -> None:
    marked = json.dumps([{"ph": "X", **event} for event in events], indent=indent, default=lambda value: f"\uf8ff{value}\uf8ff")
    trace = read_text(tmp_path, re.sub(r'"\\uf8ff([^"]*)\\uf8ff"', r"\1", marked))
    assert trace.start.tolist() == [nanoseconds(event["ts"]) for event in events]
    assert trace.events["duration"].tolist() == [nanoseconds(event.get("dur", 0)) for event in events]
    assert trace.names(np.arange(len(events))).tolist() == [event["name"].encode("utf-8", "replace").decode() for event in events]


ODD = {
    "scientific": ('"ts": 1.5e3, "dur": 2E-1', 1_500_000, 200),
    "six decimals": ('"ts": 12.345678, "dur": 0.0015', 12_346, 2),
    "negative": ('"ts": -12.345, "dur": 1', -12_345, 1000),
    "zero": ('"ts": 0, "dur": 0', 0, 0),
    "texts": ('"ts": "7.25", "dur": "1.5"', 7250, 1500),
    "infinite duration": ('"ts": 1, "dur": Infinity', 1000, 0),
    "NaN duration": ('"ts": 1, "dur": NaN', 1000, 0),
    "null arguments": ('"ts": 1, "dur": 2, "args": null', 1000, 2000),
    "overflow": ('"ts": 1, "dur": 2, "args": {"correlation": 99999999999999999999999, "Addr": 18446744073709551615}', 1000, 2000),
    "twice": ('"ts": 1, "ts": 3, "dur": 2', 3000, 2000),
}


@pytest.mark.parametrize("which", ODD)
def test_odd_but_meaningful_events_are_read(which: str, tmp_path: Path) -> None:
    fields, start, duration = ODD[which]
    sound = '{"ph": "X", "ts": 100, "dur": 1}'
    for between in (",", ",\n  "):
        trace = read_text(tmp_path, f'{{"traceEvents": [{between[1:]}{sound}{between}{{"ph": "X", {fields}}}{between}{sound}]}}')
        assert trace.start.tolist() == [100_000, start, 100_000]
        assert trace.events["duration"].tolist() == [1000, duration, 1000]


@pytest.mark.parametrize("name", [b"caf\xe9", b"C:\\users\\x", b"a\nb", b"a},\n  {b", b"\x01", b"]}", b"\\ud800"])
def test_odd_names_cost_no_event(name: bytes, tmp_path: Path) -> None:
    event = b'{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2, "name": "' + name + b'"}'
    trace = read_text(tmp_path, b'{"traceEvents": [\n  ' + b",\n  ".join([event] * 3) + b'\n  ], "x": 1}')
    assert len(trace.events) == 3
    assert len(set(trace.names(np.arange(3)).tolist())) == 1
    assert trace.names(np.arange(1))[0]


def test_odd_texts_outside_the_events_cost_nothing(tmp_path: Path) -> None:
    text = b'{"distributedInfo": {"rank": 4, "backend": "n\\ud800"}, "path": "C:\\users", "x": NaN, "traceEvents": [{}]}'
    assert read_text(tmp_path, text).meta.rank == 4
    assert read_text(tmp_path, b"\xef\xbb\xbf" + text).meta.rank == 4
    assert read_text(tmp_path, text[:-1] + b', "cut": {').meta.rank == 4


@pytest.mark.parametrize("rank", ["[1]", '"x"', "1.5", "-1", "true", "null", "1e400", "9" * 30])
def test_a_rank_that_is_none_is_unknown(rank: str, tmp_path: Path) -> None:
    assert (
        read_text(tmp_path, f'{{"distributedInfo": {{"rank": {rank}}}, "traceEvents": [{{"ph": "X", "ts": 1}}]}}').meta.rank is None
    )


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"hello", b"5", b"null", b"[1, 2]", b'"traceEvents"', b'{"traceEvents": 5}', b"\x1f\x8b", b"\x28\xb5\x2f\xfd"],
)
def test_what_is_no_trace_is_one_clear_error(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="trace.json"):
        read_text(tmp_path, text)


def test_a_broken_event_is_an_error_with_its_place_in_the_text(tmp_path: Path) -> None:
    broken = '{"ph": "X", "ts" 2}'
    text = f'{{"traceEvents": [{{"ph": "X", "ts": 1}}, {broken}, {{"ph": "X", "ts": 3}}]}}'
    with pytest.raises(TachoscopeError, match=f"the event at byte {text.index(broken)} ") as failure:
        read_text(tmp_path, text)
    assert "record the trace again" in str(failure.value)


def test_files_that_are_none_are_clear_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "pipe"):
        with pytest.raises(TachoscopeError, match=str(path)):
            read(path)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path, seen = planted().write(tmp_path / "trace.json.gz"), []
    read(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
