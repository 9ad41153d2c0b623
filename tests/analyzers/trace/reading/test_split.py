from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachoscope_analyzers.trace.reading import split_json as split
from tachoscope_analyzers.trace.reading.split_json import EventArray, NotATraceError
from trying import each

pytestmark = pytest.mark.usefixtures("scanner")

EVENTS = [
    {"ph": "X", "name": 'a},\n  {"b": ]}', "ts": 1, "args": {"nested": [{"x": 1}, {"x": 2}], "path": "C:\\dir\\"}},
    {"ph": "X", "name": '"quoted" \\" {', "ts": 2},
    {"ph": "M", "name": "]}", "args": {}},
] * 3


def array_of(text: bytes, *, size: int = 64, scan: bool = False) -> EventArray:
    return EventArray((text[start : start + size] for start in range(0, len(text), size)), scan=scan)


def events_of(array: EventArray) -> list[Any]:
    return [event for chunk in array.chunks() for event in json.loads(b"[" + chunk.strip(b" \t\r\n,") + b"]")]


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "CHUNK_BYTES", 300)
        patch.setattr(split, "LIMIT_BYTES", 4096)
        patch.setattr(split, "_MOST_SPACE_BYTES", 4096)
        yield


@each("indent", [None, 1, 2, 4, "\t"])
@each("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
@each("size", [1, 7, 64, 100_000])
def test_all_events_come_in_chunks_whatever_the_layout(indent: int | str | None, separators: tuple[str, str], size: int) -> None:
    text = json.dumps({"a": [{}], "traceEvents": EVENTS, "z": [{"x": 1}]}, indent=indent, separators=separators).encode()
    for scan in (False, True):
        array = array_of(text, size=size, scan=scan)
        assert events_of(array) == EVENTS
        assert array.is_complete
        assert json.loads(array.header + array.trailer) == {"a": [{}], "traceEvents": [], "z": [{"x": 1}]}
        assert array.text_bytes == len(text)
        assert array.cut_bytes == 0


@settings(deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([None, 2]))
def test_a_text_cut_anywhere_gives_its_whole_events_and_says_what_was_lost(length: int, indent: int | None) -> None:
    text = json.dumps({"a": 1, "traceEvents": EVENTS}, indent=indent).encode()
    text = text[: length % len(text)]
    array = array_of(text)
    try:
        found = events_of(array)
    except NotATraceError:
        assert b'"traceEvents": [' not in text
        return
    assert found == EVENTS[: len(found)]
    rest = text[len(array.header) :]
    if array.ended:
        assert len(found) == len(EVENTS)
    else:
        decoder, start = json.JSONDecoder(), 0
        for _ in found:
            start = decoder.raw_decode(rest.decode(), start + len(rest[start:]) - len(rest[start:].lstrip(b" \n,")))[1]
        assert array.cut_bytes == len(rest[start:].strip(b" \n,"))


def test_a_bare_list_is_a_trace_with_and_without_its_closing_bracket() -> None:
    text = json.dumps(EVENTS).encode()
    for one in (text, b"\n " + text, text[:-1], text[:-1] + b",\n", b"\xef\xbb\xbf" + text):
        array = array_of(one)
        assert events_of(array) == EVENTS
        assert array.is_complete


@pytest.mark.parametrize("text", [b"[]", b"[ \n]", b'{"traceEvents": []}', b'{"traceEvents":[],"x":[{}]}'])
def test_no_events_are_no_chunks(text: bytes) -> None:
    array = array_of(text)
    assert list(array.chunks()) == []
    assert array.is_complete


@pytest.mark.parametrize("text", [b"", b"  \n", b"{}", b"hello", b"\x00" * 500, b'{"traceEvents": null}', b'{"events": [{}]}'])
def test_a_text_without_a_list_of_events_is_no_trace(text: bytes) -> None:
    with pytest.raises(NotATraceError):
        list(array_of(text).chunks())


@pytest.mark.parametrize(
    "text", [b" " * 9000, b'{"a": "' + b"x" * 9000, b"[{" + b'"a":{' * 2000, b'[{"a": "' + b"x" * 9000, b"[" * 9000]
)
def test_what_has_no_end_is_given_up_before_it_fills_the_memory(text: bytes) -> None:
    with pytest.raises(NotATraceError):
        list(array_of(text).chunks())


def test_a_bracket_that_closes_too_much_is_no_trace() -> None:
    with pytest.raises(NotATraceError, match="no opening one"):
        list(array_of(b'[{"ph": "X"}}, {}]').chunks())


def test_an_events_end_found_by_the_reader_ends_the_array() -> None:
    array = array_of(b'{"traceEvents": [\n  {"a": 1}\n  ], "other": [\n  {"b": 2},\n  {"c": 3}\n  ]}', size=1000)
    for chunk in array.chunks():
        array.array_ended_at(chunk[chunk.index(b"]") :])
    assert array.ended
    assert json.loads(array.header + array.trailer)["other"] == [{"b": 2}, {"c": 3}]
