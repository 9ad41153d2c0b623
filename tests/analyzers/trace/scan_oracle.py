"""The native scanner beside the reader in Python: what both make of a chunk of events, and chunks in which anything can be odd."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from tachoscope_analyzers.trace.reading import read
from tachoscope_analyzers.trace.reading.columns import ColumnBuilder, Tables
from tachoscope_analyzers.trace.reading.decode_events import decode
from tachoscope_analyzers.trace.reading.scan import Scanned, scanned
from tachoscope_core.errors import TachoscopeError

ARGUMENTS = (
    *("External id", "external id", "correlation", "stream", "device", "bytes", "grid", "block", "est. achieved occupancy %"),
    *("blocks per SM", "graph node id", "Collective name", "In msg nelems", "Out msg nelems", "Group size", "Process Group Name"),
    *("Process Group Description", "Process Group Ranks", "dtype", "Seq", "Input Dims", "Input type", "Concrete Inputs"),
    *("Sequence number", "Fwd thread id", "Call stack", "Python id", "Python parent id", "wait_on_stream"),
    *(
        "wait_on_cuda_event_record_corr_id",
        "Bytes",
        "Addr",
        "Device Type",
        "Total Allocated",
        "name",
        "labels",
        "cbid",
        "",
        "a\u00e9",
    ),
)
_WHOLE = {
    "External id",
    "external id",
    "correlation",
    "device",
    "Seq",
    "Python id",
    "Fwd thread id",
    "Sequence number",
    "In msg nelems",
}
_TEXT = {"Collective name", "Process Group Name", "Process Group Description", "dtype", "Call stack", "name", "labels"}
CATEGORIES = ("cpu_op", "kernel", "Kernel", "gpu_memcpy", "python_function", "user_annotation", "cuda_sync", "x", "", "\u212aernel")
PHASES = ("X", "X", "X", "X", "X", "X", "i", "M", "s", "f", "C", "B", "E", "Z", "", "XX")
_NUMBERS = (
    *(
        "0",
        "-0",
        "7",
        "-1",
        "19",
        "1661203462598738",
        "1713219600123456.789",
        "-12.5",
        "0.0005",
        "0.0015",
        "12.3456",
        "3.1415926535",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "999999999999999999", "9999999999999999999"),
    *(
        "123456789012345678901234567890",
        "1e3",
        "1E-3",
        "1.5e+2",
        "1e400",
        "0.1",
        "5e-324",
        "4503599627370497.5",
        "9007199254740993",
    ),
    *(
        "0.30000000000000004",
        "123456.1234567890123",
        "3458764513820540925.0",
        "3458764513820540.925",
        "0.0000000000005",
        "01",
        "1.",
        ".5",
    ),
    *(
        "-",
        "NaN",
        "Infinity",
        "1.0",
        "7.000",
        "18446744073709551615",
        "2.5",
        "-2.5",
        "0.12345",
        "1152921504606846.975",
        "1152921504606847",
    ),
)
_STRINGS = (
    *(
        '""',
        '"a"',
        '"aten::mm"',
        '"\\u0041"',
        '"a\\"b"',
        '"\\\\"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\udc00"',
        '"\\x"',
        '"\\u12"',
    ),
    *(
        '"\u00e9\u20ac"',
        '"},\\n  {"',
        '"\t"',
        '"12"',
        '"a\\/b\\b\\f\\n\\r\\t"',
        '"\u212a"',
        '"\\u0000"',
        '"' + "n" * 300 + '"',
        '"x',
    ),
)
_OTHERS = (
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[1, 2, 3]",
    '[[1,2],["a", null]]',
    '{"a":{"b":[1]}}',
    "[1,]",
    "{,}",
    "nul",
    "[" * 70 + "]" * 70,
)


def difference(chunk: bytes) -> str | None:
    """Return what differs between scanner and decoder, "" if nothing does, None if the scanner leaves the chunk alone."""
    found = scanned(chunk)
    if found is None:
        return None
    by_scan, by_decoder = ColumnBuilder(), ColumnBuilder()
    if not by_scan.has_room(found):
        return "there is no room in empty tables"
    try:
        expected = by_decoder.tables(decode(chunk))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"the decoder refuses it: {error}"
    return tables_differ(by_scan.tables_of_scan(found), expected) or _builders_differ(by_scan, by_decoder)


def read_by(path: Path, place: Path, *, native_scanner: bool) -> tuple[Any, int]:
    """Return all files that a trace becomes, or the error that it gives, and how many chunks the scanner left to the decoder."""
    place.mkdir()
    left: list[bytes] = []

    def watched(chunk: bytes) -> Scanned | None:
        found = scanned(chunk) if native_scanner else None
        if found is None:
            left.append(chunk)
        return found

    try:
        with mock.patch.object(read, "scanned", watched):
            meta = read.converted(path, place)
        files = {file.name: file.read_bytes() for file in place.iterdir()}
        return {**files, "meta": msgspec.json.encode(meta)}, len(left)
    except (ValueError, TachoscopeError) as error:
        return (type(error), str(error), getattr(error, "offset", None), getattr(error, "text", None)), len(left)
    finally:
        shutil.rmtree(place)


def tables_differ(found: Tables, expected: Tables) -> str:
    """Return where two sets of tables differ, in names, types or values."""
    names = [[(table, list(columns)) for table, columns in tables.items()] for tables in (found, expected)]
    if names[0] != names[1]:
        return f"columns: {names}"
    for table, columns in expected.items():
        for name, values in columns.items():
            other = found[table][name]
            if other.dtype != values.dtype or other.tobytes() != np.ascontiguousarray(values).tobytes():
                return f"{table}.{name}: {other!r}, expected {values!r}"
    return ""


def _builders_differ(found: ColumnBuilder, expected: ColumnBuilder) -> str:
    for name in ("strings", "tracks", "categories", "counts", "process_names", "process_labels", "thread_names", "rows"):
        one, other = getattr(found, name), getattr(expected, name)
        if one != other or (isinstance(one, dict) and list(one) != list(other)):
            return f"{name}: {one}, expected {other}"
    return "" if found.tracks.texts == expected.tracks.texts else "texts of tracks"


def chunk_of_events(chance: random.Random) -> bytes:
    """Return the text of one to six events, mostly sound, with a wrong byte now and then."""
    oddness = chance.choice((0.0, 0.02, 0.2))
    events = [_event(chance, oddness) for _ in range(chance.randint(1, 6))]
    chunk = _between(chance, oddness).join(events).encode("utf-8", "surrogatepass")
    if chance.random() < 0.3:
        chunk = chance.choice((b",\n  ", b" ,, ", b"\n")) + chunk + chance.choice((b",", b"\n ", b",,\n"))
    if chance.random() < 0.2:
        changed = bytearray(chunk)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.choice(b'",:{}[]\\ \x00\x1f\xff\xc3abX0159.-e\n')
        chunk = bytes(changed)
    return chunk[: chance.randrange(len(chunk))] if chance.random() < 0.05 else chunk


def _between(chance: random.Random, oddness: float) -> str:
    if chance.random() < oddness / 4:
        return chance.choice((", ,", "", ";", ",null,", ",[],"))
    return chance.choice((",", ", ", ",\n  ", "\t,\r\n"))


def _event(chance: random.Random, oddness: float) -> str:
    phase = chance.choice(PHASES if chance.random() < oddness * 4 else PHASES[:10])
    track = ("1", "7", "-1", '"stream 7"', "null", "3113936")
    fields = {
        "ph": json.dumps(phase),
        "cat": json.dumps(chance.choice(CATEGORIES if chance.random() < oddness else CATEGORIES[:9]), ensure_ascii=False),
        "name": chance.choice(('"aten::mm"', '"aten::add_"', '"void gemm<float, 1>(float*)"', '"\u00e9"', '"a\\nb"', '""')),
        "pid": chance.choice(track),
        "tid": chance.choice(track),
        "ts": chance.choice(("1661203462598738", "1713219600123456.789", "12.345", "0", "5", "17132196001.5")),
        "dur": chance.choice(("19", "0.512", "3.25", "-1", "1.0005", "0")),
        "args": _object({name: _argument(name, chance) for name in chance.sample(ARGUMENTS, chance.randint(0, 9))}, chance),
    }
    if chance.random() < 0.5:
        for name in chance.sample(list(fields), chance.randint(0, 3)):
            if name not in {"ph", "ts"} or chance.random() < oddness:
                del fields[name]
    return _object({name: _odd(name, value, chance, oddness) for name, value in fields.items()}, chance, oddness)


def _argument(name: str, chance: random.Random) -> str:
    if chance.random() < 0.03:
        return _any(chance)
    if name in _WHOLE:
        if chance.random() < 0.05:
            return chance.choice(_NUMBERS)
        return chance.choice(("0", "5", "-1", "123456789", "4294967295"))
    if name in _TEXT:
        return chance.choice(
            ('""', '"allreduce"', '"0"', '"BFloat16"', '"a;b\\nc"', "null" if name not in {"name", "labels"} else '"x"')
        )
    return chance.choice(
        ("0", "12", "60", "0.5555556" if name == "blocks per SM" else "28", "[1, 2]" if name in {"grid", "block"} else "3")
    )


def _odd(name: str, value: str, chance: random.Random, oddness: float) -> str:
    """Return a value, or another one: a number of any size and precision for a time, and now and then anything at all."""
    if name in {"ts", "dur"} and chance.random() < oddness * 2:
        return chance.choice(_NUMBERS)
    return _any(chance) if chance.random() < oddness / 4 else value


def _any(chance: random.Random) -> str:
    return chance.choice(chance.choice((_NUMBERS, _STRINGS, _OTHERS)))


def _object(fields: dict[str, str], chance: random.Random, oddness: float = 0.01) -> str:
    pairs = list(fields.items())
    if chance.random() < 0.3:
        chance.shuffle(pairs)
    if pairs and chance.random() < oddness / 2:
        pairs.append(chance.choice(pairs))
    comma, colon = chance.choice(((",", ":"), (", ", ": "), (",\n    ", ": "), (" ,\t", "\r\n:  ")))
    texts = [json.dumps(name, ensure_ascii=chance.random() < 0.5) + colon + value for name, value in pairs]
    begin, end = chance.choice((("{", "}"), ("{\n  ", "\n  }"), ("{ ", "}")))
    return begin + comma.join(texts) + end
