from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tachoscope_analyzers.trace.reading import begin_end_pairs as pairs
from tachoscope_analyzers.trace.reading import string_codes as codes
from tachoscope_analyzers.trace.reading.columns import ColumnBuilder
from tachoscope_analyzers.trace.reading.decode_events import decode
from tachoscope_analyzers.trace.reading.string_codes import TOO_MANY, Codes, TrackCodes


def built(*chunks: list[dict[str, Any]]) -> tuple[ColumnBuilder, dict[str, dict[str, Any]]]:
    """The tables of several chunks, joined."""
    builder, tables = ColumnBuilder(), []
    for chunk in chunks:
        tables.append(builder.tables(decode(json.dumps(chunk).encode()[1:-1])))
    builder.finish()
    joined = {
        name: {key: np.concatenate([one[name][key] for one in tables]).tolist() for key in tables[0][name]} for name in tables[0]
    }
    return builder, joined


def complete(**fields: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "a", "cat": "kernel", "ts": 1, "dur": 2, "pid": 0, "tid": 7, **fields}


raws = st.sampled_from(["absent", [], [1, 2, 3], "[1,2]", "\0", "a\0b", "é", {"x": [1, "\0"]}])


@settings(deadline=None)
@given(st.lists(st.tuples(raws, raws), max_size=30), st.integers(1, 10))
def test_pieces_of_json_come_back_as_they_were_written(pairs: list[tuple[Any, Any]], size: int) -> None:
    events = [
        complete(args={key: value for key, value in zip(("grid", "block"), pair, strict=True) if value != "absent"})
        for pair in pairs
    ]
    builder, tables = built(*(events[start : start + size] for start in range(0, max(1, len(events)), size)))
    strings = list(builder.strings)
    for column, place in (("grid", 0), ("block", 1)):
        expected = ["" if pair[place] == "absent" else json.dumps(pair[place]) for pair in pairs]
        assert [strings[code] for code in tables["device"][column]] == expected


def test_pieces_of_json_with_zero_bytes_in_them_come_back_too() -> None:
    builder = ColumnBuilder()
    codes_of = builder._raw([b"a\0b", b"", b"a\0b", b"c"])
    assert [list(builder.strings)[code] for code in codes_of.tolist()] == ["a\0b", "", "a\0b", "c"]


def test_rows_number_the_events_across_chunks() -> None:
    one = [complete(cat="cpu_op"), complete(), {"ph": "M", "name": "process_name", "args": {"name": "x"}}, complete()]
    _, tables = built(one, one)
    assert tables["device"]["row"] == [1, 2, 4, 5]
    assert tables["operators"]["row"] == [0, 3]


def test_begins_find_their_ends_across_chunks_and_on_their_own_track() -> None:
    def half(phase: str, time: float, thread: int, name: str = "") -> dict[str, Any]:
        return {"ph": phase, "ts": time, "pid": 1, "tid": thread, "name": name, "args": {"grid": [1]}}

    builder, tables = built(
        [half("B", 1, 1, "outer"), half("B", 2, 1, "inner"), half("B", 3, 2, "other")],
        [half("E", 5.5, 1), half("E", 6, 3)],
        [half("E", 9, 2), half("E", 10.001, 1), half("B", 11, 1, "left open")],
    )
    names = [list(builder.strings)[code] for code in tables["events"]["name"]]
    spans = zip(names, tables["events"]["start"], tables["events"]["duration"], strict=True)
    assert set(spans) == {("outer", 1000, 9001), ("inner", 2000, 3500), ("other", 3000, 6000)}
    assert builder.counts["ends_without_begin"] == 1
    assert builder.counts["begins_without_end"] == 1


def test_begins_without_ends_are_kept_up_to_a_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(pairs, "MOST_OPEN", 10)
    builder, _ = built([{"ph": "B", "ts": 1, "name": "x", "pid": 1, "tid": 1}] * 25)
    assert builder.counts["begins_without_end"] == 10
    assert builder.counts["begins_beyond_the_limit"] == 15


def test_times_and_durations_without_sense_are_counted() -> None:
    builder, tables = built([complete(ts="x"), complete(dur=-3), {"ph": "X", "ts": 4}, complete(), {"ph": "B", "ts": {}}])
    assert tables["events"]["start"] == [1000, 4000, 1000]
    assert tables["events"]["duration"] == [0, 0, 2000]
    assert builder.counts["events_without_time"] == 2
    assert builder.counts["negative_durations"] == 1
    assert builder.counts["events_without_duration"] == 1


def test_numbers_that_do_not_fit_are_absent_and_their_neighbours_are_not() -> None:
    _, tables = built([complete(args={"correlation": 2**63, "device": 3}), complete(args={"correlation": 5, "device": 2**64})])
    assert tables["events"]["correlation"] == [-1, 5]
    assert tables["device"]["device"] == [3, -1]


def test_allocations_become_a_table() -> None:
    args = {"Bytes": -512, "Addr": 2**63 + 5, "Device Type": 1, "Device Id": 0, "Total Allocated": 1024, "Total Reserved": 2048}
    other = {"ph": "i", "name": "Iteration Start", "ts": 2}
    _, tables = built([{"ph": "i", "name": "[memory]", "ts": 1.5, "args": args}, other])
    assert [tables["memory"][key] for key in ("time", "bytes", "address", "allocated_bytes", "reserved_bytes")] == [
        *([1500], [-512], [-1], [1024], [2048])
    ]


@given(st.lists(st.text(max_size=3), max_size=60), st.integers(2, 20))
def test_codes_are_one_to_one_until_the_table_is_full(values: list[str], most: int) -> None:
    table = Codes(most, "")
    found = table.encode(values).tolist()
    texts = list(table)
    assert len(texts) <= most
    assert all(texts[code] in {value, TOO_MANY} for value, code in zip(values, found, strict=True))
    assert (table.overflow > 0) == (len({"", *values}) > most - 1)
    assert table.overflow == sum(texts[code] == TOO_MANY for code in found)


def test_long_texts_fill_the_table_too() -> None:
    table = Codes(1000, most_bytes=100)
    table.encode(["x" * 60, "y" * 60, "z", "x" * 60])
    assert list(table) == ["x" * 60, TOO_MANY, "z"]
    assert table.overflow == 1


def test_a_thread_written_as_number_or_text_is_one_track() -> None:
    tracks = TrackCodes()
    assert tracks.encode([(1, 2), ("1", 2), ("1", "2"), (None, 2), ("", 2), (1, 3)], 6).tolist() == [0, 0, 0, 1, 1, 2]
    assert list(tracks.texts) == [("1", "2"), ("", "2"), ("1", "3")]


def test_tracks_without_number_share_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(codes, "MOST_TRACKS", 5)
    tracks = TrackCodes()
    found = tracks.encode([(0, number) for number in range(20)], 20).tolist()
    assert found == [0, 1, 2, 3, 4] + [5] * 15
    assert len(tracks.texts) == 6
    assert tracks.overflow == 15
