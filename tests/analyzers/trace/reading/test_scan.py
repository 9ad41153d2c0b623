from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutating import mutated
from recorded import ALL, DATA, SMALL_FIRST, recorded
from scan_oracle import chunk_of_events, difference, read_by
from tachoscope_analyzers.trace.reading import string_codes
from tachoscope_analyzers.trace.reading.columns import ColumnBuilder
from tachoscope_analyzers.trace.reading.json_brackets import MODULE, BracketError, Brackets
from tachoscope_analyzers.trace.reading.scan import scanned
from tachoscope_core.native import native

pytestmark = pytest.mark.skipif(native(MODULE).module is None, reason=native(MODULE).reason or "native")

_PARTS = 20
_CHUNKS, _CHUNKS_OF_THE_BAR = 1_000, 200_000
_FILES, _FILES_OF_THE_BAR = 60, 10_000

EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 1661203462598738, "dur": 19, "args": {%s}}'


@pytest.mark.skipif(not ALL, reason=f"no recorded traces at {DATA} (set TACHOSCOPE_TEST_DATA)")
@pytest.mark.parametrize("name", SMALL_FIRST or ["none"])
def test_a_recorded_trace_gives_the_same_files_with_and_without_the_scanner(name: str, tmp_path: Path) -> None:
    with_scanner, chunks_left = read_by(recorded(name), tmp_path / "native", native_scanner=True)
    without, _ = read_by(recorded(name), tmp_path / "python", native_scanner=False)
    assert with_scanner == without
    assert chunks_left == 0, "none of the recorded traces needs the decoder"


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.bar] * (part > 0)) for part in range(_PARTS)])
def test_a_chunk_in_which_anything_can_be_odd_gives_the_same_columns_or_is_left_alone(part: int, request: Any) -> None:
    count = _CHUNKS_OF_THE_BAR // _PARTS if request.config.getoption("--bar-runs") >= 10 else _CHUNKS
    taken = 0
    for number in range(count):
        chunk = chunk_of_events(random.Random(part * 1_000_003 + number))
        differs = difference(chunk)
        assert not differs, f"part {part}, number {number}: {differs}\n{chunk!r}"
        taken += differs is not None
    assert count // 5 < taken < count * 4 // 5, "the chunks are too odd or too plain to test anything"


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.bar] * (part > 0)) for part in range(_PARTS)])
def test_a_broken_file_gives_the_same_files_or_the_same_error(part: int, tmp_path: Path, request: Any) -> None:
    count = _FILES_OF_THE_BAR // _PARTS if request.config.getoption("--bar-runs") >= 10 else _FILES
    seeds = [
        b'{"traceEvents": [\n  ' + _several_events(seed, separator) + b"\n  ]}"
        for seed in range(3)
        for separator in (b",\n  ", b",")
    ]
    path = tmp_path / "trace.json"
    for number in range(count):
        path.write_bytes(mutated(seeds, random.Random(part * 1_000_003 + number)))
        with_scanner, _ = read_by(path, tmp_path / "native", native_scanner=True)
        without, _ = read_by(path, tmp_path / "python", native_scanner=False)
        assert with_scanner == without, f"part {part}, number {number}"


def _several_events(seed: int, separator: bytes) -> bytes:
    chance = random.Random(seed)
    chunks = [chunk for _ in range(60) if difference(chunk := chunk_of_events(chance)) is not None]
    return separator.join(chunk.strip(b" \t\r\n,") for chunk in chunks)


@pytest.mark.parametrize(
    "argument",
    [
        *(b'"correlation": 1.0', b'"correlation": 1e3', b'"correlation": 1234567890123456789', b'"correlation": "5"'),
        *(b'"correlation": null', b'"correlation": 01', b'"correlation": 5, "correlation": 6', b'"stream": null'),
        *(
            b'"c\\u006frrelation": 5',
            b'"x": "\\ud800"',
            b'"x": "\\x41"',
            b'"x": "\t"',
            b'"x": [1,]',
            b'"x": ' + b"[" * 65 + b"]" * 65,
        ),
        *(b'"x": nul', b'"x": 1.', b'"x": .5', b'"x": +1', b'"x": 1e', b'"x" 5', b'"x": 5,', b'"blocks per SM": 1e-5'),
        *(b'"blocks per SM": 0.12345678901234567', b'"Call stack": "\xff"', b'"dtype": "\xff"', b'"Call stack": 5', b'"x": \0'),
    ],
)
def test_what_is_not_plain_is_left_to_the_decoder(argument: bytes) -> None:
    assert scanned(EVENT % b"" + b"," + EVENT % argument) is None


@pytest.mark.parametrize("category", ["\u212aernel".encode(), b"kern\\u0065l"])
def test_a_category_that_only_python_brings_to_lower_case_is_left_to_it(category: bytes) -> None:
    assert scanned(b'{"ph": "X", "ts": 1, "cat": "' + category + b'"}') is None


@pytest.mark.parametrize(
    "chunk", [b"", b" ,", b"{}", b"[]", b"5", EVENT % b"" + EVENT % b"", EVENT % b"" + b"]", (EVENT % b"")[:-1]]
)
def test_a_chunk_of_anything_but_whole_events_is_left_to_the_decoder(chunk: bytes) -> None:
    assert scanned(chunk) is None


def test_a_chunk_that_is_cut_anywhere_is_left_to_the_decoder() -> None:
    assert [length for length in range(90) if scanned((EVENT % b"")[:length]) is not None] == []


@given(st.text('"\\{}[]a,\n', max_size=60).map(str.encode), st.integers(1, 70))
def test_brackets_are_counted_alike_however_the_text_is_cut_into_pieces(text: bytes, size: int) -> None:
    counters = Brackets(), Brackets()
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        found, expected = _last_end(counters[0], piece), _last_end_by_all(counters[1], piece)
        assert found == expected
        if found is None or found[1] is not None:
            break


def _last_end(counter: Brackets, piece: bytes) -> tuple[int, int | None] | None:
    try:
        return counter.last_end(piece)
    except BracketError:
        return None


def _last_end_by_all(counter: Brackets, piece: bytes) -> tuple[int, int | None] | None:
    try:
        ends, closed = counter.ends(piece)
    except BracketError:
        return None
    return int(ends[-1]) if len(ends) else 0, closed


@pytest.mark.parametrize("number", [b"-0", b"-0.0", b"0.1", b"123.456789", b"9007199254740991", b"-12.5"])
def test_fractions_have_the_sign_and_the_last_bit_that_the_decoder_gives_them(number: bytes) -> None:
    text = (EVENT % b'"blocks per SM": %s').replace(b"cpu_op", b"kernel").replace(b'"dur": 19', b'"dur": ' + number)
    assert difference(text % number) == ""


def test_begins_and_ends_are_left_to_the_decoder_which_pairs_them() -> None:
    assert scanned(EVENT % b"" + b', {"ph": "B", "ts": 1, "name": "a"}, {"ph": "E", "ts": 2}') is None


def test_names_that_a_full_table_would_not_take_are_counted_by_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    found = scanned(EVENT % b"")
    assert found is not None
    assert ColumnBuilder().has_room(found)
    monkeypatch.setattr("tachoscope_analyzers.trace.reading.columns.MOST_STRINGS", 2)
    assert not ColumnBuilder().has_room(found)
    monkeypatch.undo()
    monkeypatch.setattr(string_codes, "MOST_TRACKS", 0)
    assert not ColumnBuilder().has_room(found)


def test_thousands_of_different_texts_each_keep_their_own_code() -> None:
    names = [f"kernel {number % 7000}" for number in range(20_000)]
    chunk = ",".join(f'{{"ph":"X","name":"{name}","pid":"{number}","ts":{number}}}' for number, name in enumerate(names)).encode()
    assert difference(chunk) == ""


def test_the_scanner_says_what_it_takes() -> None:
    module = native(MODULE).module
    for wrong in ((), (b"",), (b"", []), ("", {}), (b"", {1: 1}), (b"", {"a": "b"})):
        with pytest.raises(TypeError):
            module.scan(*wrong)
