"""Files made to fill the memory or to take for ever: each ends with a trace or a clear error, in bounded memory.

`make test` runs small ones, whose limits are lowered in proportion; `make bars` runs them in full.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import zstandard

_PEAK_MIB = 700
"""Of the whole process while it reads, of which Python with its libraries are 110."""

CHILD = """
import json, re, sys
from pathlib import Path
from tachoscope_analyzers.trace.reading import string_codes as codes
from tachoscope_analyzers.trace.events import launch_links as links
from tachoscope_analyzers.trace.reading import header_trailer as outside
from tachoscope_analyzers.trace.reading import begin_end_pairs as pairs
from tachoscope_analyzers.trace.reading import split_json as split
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_core.errors import TachoscopeError

def peak():  # getrusage counts the memory of the process that started this one
    return int(re.search("VmHWM: *([0-9]+)", Path("/proc/self/status").read_text().replace("\t", " "))[1]) >> 10

outcome = {}
try:
    trace = read(Path(sys.argv[1]))
    outcome["mib"] = peak()
    view = TraceView(trace)
    view.work, view.operator_of
    outcome |= {"events": len(trace.events), "counts": trace.meta.quality.counts, "strings": len(trace.strings)}
except TachoscopeError as error:
    outcome = {"error": str(error)}
print(json.dumps({"mib": peak(), **outcome}))
"""


def events(text: str) -> Callable[[int], Iterator[bytes]]:
    """A list of events that differ in a number."""

    def pieces(count: int) -> Iterator[bytes]:
        yield b'{"traceEvents": [{}'
        for start in range(0, count, 10_000):
            yield "".join([f",{text % number}" for number in range(start, min(count, start + 10_000))]).encode()
        yield b"]}"

    return pieces


def bomb(begin: bytes, filling: bytes, end: bytes = b"") -> Callable[[int], Iterator[bytes]]:
    """A few bytes over and over; its size in MiB."""

    def pieces(mebibytes: int) -> Iterator[bytes]:
        yield begin
        block = filling * ((1 << 20) // len(filling))
        for _ in range(mebibytes):
            yield block
        yield end

    return pieces


SOUND = b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}'

CASES: dict[str, tuple[Callable[[int], Iterator[bytes]], int, int, str]] = {
    # name: pieces, size in `make test`, size in `make bars`, what comes out
    "white space": (bomb(b"", b" "), 100, 4000, "error"),
    "white space after the events": (bomb(SOUND + b"]}", b" "), 100, 4000, "events"),
    "white space among the events": (bomb(SOUND, b" "), 100, 4000, "error"),
    "zeros": (bomb(b"", b"\0"), 100, 4000, "error"),
    "a name of a gigabyte": (bomb(b'[{"ph": "X", "ts": 1, "name": "', b"x", b'"}]'), 100, 1024, "error"),
    "arguments of a gigabyte": (bomb(b'[{"ph": "X", "ts": 1, "args": {"a": [0', b",0", b"]}}]"), 100, 1024, "error"),
    "a name of 60 MiB": (bomb(b'[{"ph": "X", "ts": 1, "name": "', b"x", b'"}]'), 20, 60, "events"),
    "broken arguments of 60 MiB": (bomb(b'[{"ph": "X", "ts": NaN, "args": {"a": [0', b",[]", b"]}}]"), 20, 60, "error"),
    "opening brackets": (bomb(b"[", b"["), 100, 1024, "error"),
    "opening braces": (bomb(b'[{"a":', b'{"a":'), 100, 1024, "error"),
    "closing brackets": (bomb(b'{"traceEvents": [', b"]"), 100, 1024, "events"),
    "quotes": (bomb(b"[", b'"'), 100, 1024, "error"),
    "backslashes": (bomb(b'[{"a": "', b"\\"), 100, 1024, "error"),
    "escaped quotes": (bomb(b'[{"a": "', b'\\"'), 100, 1024, "error"),
    "metadata": (bomb(b'{"a": [0', b",0", b'], "traceEvents": []}'), 100, 1024, "error"),
    "a long description": (bomb(b'{"distributedInfo": [0', b",0", b'], "traceEvents": []}'), 20, 60, "events"),
    "a broken header": (bomb(b'{"a": [NaN', b",[]", b'], "traceEvents": []}'), 20, 60, "events"),
    "nesting": (
        lambda depth: iter([b'[{"ph": "X", "ts": 1, "args": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}]"]),
        100_000,
        1_000_000,
        "error",
    ),
    "begins without ends": (events('{"ph": "B", "ts": %d, "name": "a", "pid": 1, "tid": 1}'), 300_000, 5_000_000, "events"),
    "ends without begins": (events('{"ph": "E", "ts": %d, "pid": 1, "tid": 1}'), 100_000, 2_000_000, "events"),
    "tracks": (events('{"ph": "X", "ts": 1, "pid": 1, "tid": %d}'), 200_000, 5_000_000, "events"),
    "names of tracks": (
        events('{"ph": "M", "name": "thread_name", "pid": 1, "tid": %d, "args": {"name": "some thread"}}'),
        200_000,
        5_000_000,
        "events",
    ),
    "categories": (events('{"ph": "X", "ts": 1, "cat": "category %d"}'), 50_000, 2_000_000, "events"),
    "allocations": (events('{"ph": "i", "ts": %d, "args": {"Bytes": 5}}'), 50_000, 2_000_000, "events"),
    "unknown phases": (events('{"ph": "Q", "ts": %d}'), 50_000, 500_000, "events"),
    "unknown types": (events('{"ph": "X", "ts": "%d", "pid": 1.5, "args": null}'), 20_000, 500_000, "events"),
    "a line break in each name": (events('{"ph": "X", "ts": %d, "name": "a\n"}'), 20_000, 500_000, "events"),
}
CASES["many names"] = (
    events('{"ph": "X", "ts": 1, "dur": 1, "name": "a rather long name with a number %d"}'),
    200_000,
    10_000_000,
    "events",
)


SOONEST = ("metadata", "begins without ends")
"""The others run with the bars."""


@pytest.mark.parametrize("which", [pytest.param(name, marks=[pytest.mark.bar] * (name not in SOONEST)) for name in CASES])
def test_no_file_takes_more_than_bounded_memory(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pieces, small, large, expected = CASES[which]
    size = large if request.config.getoption("--bar-runs") >= 10 else small
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in pieces(size):
            file.write(piece)
    outcome = read_by_another_process(path)
    assert expected in outcome, outcome
    assert outcome["mib"] < _PEAK_MIB, outcome


def test_a_zstandard_bomb_is_no_different(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.zst"
    with zstandard.ZstdCompressor().stream_writer(path.open("wb")) as writer:
        for piece in islice(bomb(b'{"a": "', b"x")(100), 100):
            writer.write(piece)
    outcome = read_by_another_process(path)
    assert "traceEvents" in outcome["error"]
    assert outcome["mib"] < _PEAK_MIB


def read_by_another_process(path: Path) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, timeout=1200, check=False, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found
