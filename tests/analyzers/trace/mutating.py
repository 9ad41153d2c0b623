"""Breaks traces in the ways in which files break, and in ways in which only an attacker would."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_EXTREMES = (
    *(b"0", b"-0", b"-1", b"1e308", b"-1e308", b"1e400", b"1e-400", b"1E999999999", b"NaN", b"Infinity", b"-Infinity", b"nan"),
    *(b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"18446744073709551616", b"9" * 400, b"0.5e0"),
    *(
        b"1713219600123456.789",
        b"null",
        b"true",
        b'"12"',
        b'"x"',
        b'""',
        b"[]",
        b"{}",
        b"[[]]",
        b"1.",
        b".5",
        b"01",
        b"0x10",
        b"1_0",
    ),
)
_TEXTS = (
    *(
        b'"',
        b"\\",
        b'\\"',
        b"\\u00",
        b"\\ud800",
        b"\n",
        b"\r\n",
        b"\0",
        b"\x1f",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"},\n  {",
        b"]}",
        b"]",
        b"}",
    ),
    *(
        b"{",
        b"[",
        b",",
        b",,",
        b":",
        b'"ph": "X", ',
        b'"traceEvents": [',
        b"\x1f\x8b",
        b"/*",
        b"'",
        "é".encode(),
        b"[" * 2000,
        b"{}," * 50,
    ),
)
_PHASES = ("X", "B", "E", "i", "I", "M", "s", "f", "C", "b", "e", "P", "Q", "", "XX", None, 5, "X\ud800")
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        -0.0,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
        -(2**70),
        1e300,
        "",
        "7",
        "-1.5",
        "nan",
        "x",
        "\ud800",
        "\0",
    ),
    *(
        [],
        {},
        [1],
        {"a": 1},
        [[[[]]]],
        "stream 7",
        "NCCL_ALLREDUCE",
        "ProfilerStep#3",
        "ncclDevKernel_AllReduce",
        "}, \n {",
        float("nan"),
    ),
)


def mutated(seeds: list[bytes], chance: random.Random) -> bytes:
    """Return one of the seeds with one to four things wrong."""
    data = chance.choice(seeds)
    if data.startswith(b"SQLite format 3"):
        return _bytes_changed(data, chance, 1 + chance.randrange(4))
    if chance.random() < 0.4:
        data = _structure_changed(data, chance)
    for _ in range(chance.randrange(4)):
        data = chance.choice(_TEXTUAL)(data, seeds, chance)
    packed = chance.random()
    if packed < 0.15:
        data = gzip.compress(data, 1) if packed < 0.1 else zstandard.compress(data, 1)
        data = (
            _bytes_changed(data, chance, chance.randrange(3)) if chance.random() < 0.7 else data[: chance.randrange(len(data) + 1)]
        )
    return data


def _bytes_changed(data: bytes, chance: random.Random, times: int) -> bytes:
    changed = bytearray(data)
    for _ in range(times):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _flip(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    return _bytes_changed(data, chance, 1 + chance.randrange(8))


def _cut(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _dropped(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    start, length = chance.randrange(len(data) + 1), 1 + chance.randrange(200)
    return data[:start] + data[start + length :]


def _doubled(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    start, length = chance.randrange(len(data) + 1), 1 + chance.randrange(400)
    return data[: start + length] + data[start:]


def _spliced(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    other = chance.choice(seeds)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other)) :]


def _inserted(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.choice(_TEXTS) + data[place:]


def _numbers(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    for match in sorted(chance.sample(found, min(len(found), 1 + chance.randrange(4))), key=lambda one: -one.start()):
        data = data[: match.start()] + chance.choice(_EXTREMES) + data[match.end() :]
    return data


_TEXTUAL: tuple[Callable[[bytes, list[bytes], random.Random], bytes], ...] = (
    *(_flip, _cut, _dropped, _doubled, _spliced, _inserted, _inserted, _numbers, _numbers),
)


def _structure_changed(data: bytes, chance: random.Random) -> bytes:
    try:
        tree = json.loads(data)
    except ValueError:
        return data
    for _ in range(1 + chance.randrange(5)):
        _change(tree, chance)
    separators = (",", ":") if chance.random() < 0.5 else None
    return json.dumps(tree, indent=chance.choice((None, None, 0, 1, 2, "\t")), separators=separators).encode(
        "utf-8", "surrogatepass"
    )


def _change(node: Any, chance: random.Random) -> None:
    """Walk down at random and change, drop, double or add one thing."""
    while True:
        keys = list(range(len(node))) if isinstance(node, list) else list(node)
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(node[key], list | dict) and node[key] and chance.random() < 0.85:
            node = node[key]
            continue
        action = chance.random()
        if key == "ph":
            node[key] = chance.choice(_PHASES)
        elif action < 0.7:
            node[key] = copy.deepcopy(chance.choice(_VALUES))
        elif action < 0.85:
            del node[key]
        elif isinstance(node, list):
            node.insert(key, copy.deepcopy(chance.choice((node[key], {}, None, 1, "x", []))))
        else:
            node[chance.choice(("ts", "dur", "cat", "args", "pid", "tid", "ph", "name", "traceEvents"))] = copy.deepcopy(
                chance.choice(_VALUES)
            )
        return


def nsight_export(path: Path) -> bytes:
    """Return a small export of Nsight Systems."""
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000'), (3, 'forward');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (200, 300, 0, 7, 1, 16777216, 1, 8, 1, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
                nameId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 120, 16777217, 1, 2);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
            INSERT INTO NVTX_EVENTS VALUES (50, 400, 59, NULL, 3, 16777217);
            """
        )
    database.close()
    return path.read_bytes()
