from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest

from tachoscope_analyzers.trace.reading.decode_events import (
    Begin,
    Complete,
    End,
    Instant,
    MalformedEventError,
    Meta,
    decode,
    decode_each,
)


def one(text: str | bytes) -> tuple[Any, Counter[str]]:
    counts: Counter[str] = Counter()
    events, closed = decode_each(text if isinstance(text, bytes) else text.encode(), counts)
    assert closed == -1
    return (events[0] if events else None), counts


def event(**fields: Any) -> str:
    return json.dumps({"ph": "X", "name": "a", "ts": 1.5, "dur": 2, **fields})


def test_phases_become_types_and_those_that_nobody_needs_are_skipped() -> None:
    text = ",".join(event(ph=phase) for phase in "XBEiMsftCbenNODPRcvVSTpFI")
    events = decode(text.encode())
    assert [type(found) for found in events[:5]] == [Complete, Begin, End, Instant, Meta]
    assert all(type(found).__name__.startswith("Skipped") for found in events[5:])


@pytest.mark.parametrize(
    "fields",
    [
        {"pid": 7.5},
        {"args": None},
        {"args": [1]},
        {"args": {"stream": [7]}},
        {"args": {"correlation": "12"}},
        {"args": {"Collective name": 5}},
        {"cat": None},
        {"dur": "2"},
        {"tid": ["x"]},
    ],
)
def test_a_field_of_another_type_costs_no_event(fields: dict[str, Any]) -> None:
    found, counts = one(event(**fields))
    assert (found.name, bytes(found.ts), found.dur) == ("a", b"1.5", 2.0)
    assert counts["mended_events"] == 1


def test_numbers_as_text_are_numbers() -> None:
    found, _ = one(
        event(ts="1713219600123456.789", dur="0.001", args={"correlation": "12", "stream": "7", "bytes": 3.0, "grid": 5}, pid=1.5)
    )
    assert bytes(found.ts) == b"1713219600123456.789"
    assert (found.dur, found.args.correlation, found.args.stream, found.args.bytes, bytes(found.args.grid)) == (
        0.001,
        12,
        7,
        3,
        b"5",
    )
    assert found.pid == "1.5"


@pytest.mark.parametrize(
    "number", ["9223372036854775808", "-9223372036854775809", "1e400", "9" * 300, '"x"', "NaN", "Infinity", "true"]
)
def test_a_correlation_that_is_no_number_of_64_bits_is_absent(number: str) -> None:
    found, _ = one(f'{{"ph": "X", "ts": 1, "pid": 1.5, "args": {{"correlation": {number}}}}}')
    assert found.args.correlation == -1


@pytest.mark.parametrize("duration", ["NaN", "null", '"x"', "{}"])
def test_a_duration_that_is_no_number_is_absent(duration: str) -> None:
    found, _ = one(f'{{"ph": "X", "ts": 1, "dur": {duration}}}')
    assert math.isnan(found.dur)


@pytest.mark.parametrize("time", ["NaN", "Infinity"])
def test_an_event_without_a_time_is_left_out_and_counted(time: str) -> None:
    assert one(f'{{"ph": "X", "ts": {time}}}') == (None, Counter(events_without_time=1))
    assert one('{"ph": "X"}') == (None, Counter(events_without_time=1))


@pytest.mark.parametrize("text", ['{"ph": "Q", "ts": 1}', '{"ph": 5}', '{"ts": 1}', '{"ph": null, "name": "x"}'])
def test_an_unknown_phase_is_left_out_and_counted(text: str) -> None:
    assert one(text) == (None, Counter(events_of_unknown_phase=1))


def test_the_empty_event_that_tensorflow_ends_with_is_no_unknown_one() -> None:
    assert one("{}") == (None, Counter(events_of_unknown_phase=0))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"C:\\new\\x.py", "C:\new\\x.py"),
        (b"C:\\users\\data\\x.py", "C:\\users\\data\\x.py"),
        (b"\\path", "\\path"),
        (b"caf\xe9", "caf\ufffd"),
        (b"line\nbreak\ttab\x01", "line\nbreak\ttab\x01"),
    ],
)
def test_names_that_are_no_legal_json_are_mended(name: bytes, expected: str) -> None:
    found, counts = one(b'{"ph": "X", "ts": 1, "name": "' + name + b'"}')
    assert found.name == expected
    assert counts["mended_events"] == 1


def test_of_a_key_that_stands_twice_the_last_one_counts() -> None:
    assert one('{"ph": "X", "ts": 1, "name": "a", "name": "b"}')[0].name == "b"
    assert one('{"ph": "X", "ts": 1, "pid": 1.5, "name": "a", "name": "b"}')[0].name == "b"


def test_commas_too_many_do_no_harm() -> None:
    counts: Counter[str] = Counter()
    assert len(decode_each(f",{event()},,\n{event()},".encode(), counts)[0]) == 2


def test_the_arrays_end_is_told() -> None:
    text = f'{event()}], "z": [{{}}]'.encode()
    events, closed = decode_each(text, Counter())
    assert len(events) == 1
    assert text[closed:] == b'], "z": [{}]'


@pytest.mark.parametrize(
    "text",
    [
        "5",
        '"x"',
        f"{event()} 5",
        f"{event()}, x, {event()}",
        "[1]",
        '{"ph": "X" "ts": 1}',
        "{'ph': 'X'}",
        '{"ph": "X"}}',
        '{"a": /*c*/ 1}',
    ],
)
def test_what_is_no_event_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(MalformedEventError) as failure:
        one(text)
    assert 0 <= failure.value.offset <= len(text)
    assert failure.value.text


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    with pytest.raises(MalformedEventError, match="nested"):
        one('{"ph": "X", "ts": 1, "args": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}")


def test_a_broken_event_of_megabytes_is_not_mended() -> None:
    with pytest.raises(MalformedEventError, match="too long"):
        one('{"ph": "X", "ts": 1, "args": NaN, "x": "' + "x" * (5 << 20) + '"}')
