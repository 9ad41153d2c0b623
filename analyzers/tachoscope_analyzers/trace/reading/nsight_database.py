"""The database of an Nsight Systems export, opened and queried without trusting what it holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tachoscope_analyzers.trace.reading.string_codes import MOST_STRING_BYTES, MOST_STRINGS, clean
from tachoscope_analyzers.trace.reading.trace import Device

_ROWS = 20_000
_MOST_TEXT = 8 << 10


class NotAnExportError(ValueError):
    """A SQLite file without the tables of an Nsight Systems export, or one that is damaged."""


def connected(path: Path) -> sqlite3.Connection:
    """Open a file read-only and unlocked; text that is not UTF-8 is fixed, and cut where it is too long for a name.

    Raises:
        sqlite3.Error: it is not a database.
    """
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda value: value[:_MOST_TEXT].decode("utf-8", "replace")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 64 << 20)
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA cell_size_check = ON")
    database.execute("PRAGMA mmap_size = 0")
    return database


def table_columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's stored columns, none if there is no such table."""
    made = database.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    if made is None or not str(made[0]).upper().startswith("CREATE TABLE"):  # a view or a virtual table
        return set()
    # Generated columns ("hidden" is not 0) are computed by expressions from the file.
    return {row[1] for row in database.execute(f"PRAGMA table_xinfo({table})") if row[6] == 0}


def batches(database: sqlite3.Connection, table: str, columns: list[str], most: int) -> Iterator[dict[str, list[Any]]]:
    """Yield batches of rows as columns; a damaged tree of pages could give the same ones for ever, so at most `most` rows."""
    if not columns:
        return
    names = ", ".join(f'"{name}"' for name in columns)
    cursor = database.execute(f"SELECT {names} FROM {table}")  # noqa: S608 - names are those above
    count = 0
    while rows := cursor.fetchmany(_ROWS):
        count += len(rows)
        if count > most:
            raise NotAnExportError(f"{table} has more rows than the file has bytes")
        yield dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))


def device_ids(database: sqlite3.Connection) -> dict[tuple[int, int], int]:
    """Return the number of a device by process and the number that it has in there."""
    if not table_columns(database, "TARGET_INFO_CUDA_DEVICE").issuperset({"gpuId", "cudaId", "pid"}):
        return {}
    rows = database.execute("SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE LIMIT 65536")
    return {(row[0], row[1]): row[2] for row in rows if all(isinstance(value, int) for value in row)}


def texts(database: sqlite3.Connection) -> dict[int, str]:
    """Return text by its number, up to `MOST_STRINGS` and `MOST_STRING_BYTES`; none without the table."""
    if not table_columns(database, "StringIds").issuperset({"id", "value"}):
        return {}
    rows = database.execute("SELECT id, value FROM StringIds LIMIT ?", (MOST_STRINGS,))
    left, found = MOST_STRING_BYTES, {}
    for number, text in rows:
        if isinstance(number, int) and isinstance(text, str) and len(text) <= left:
            found[number] = text
            left -= len(text)
    return found


def labels(database: sqlite3.Connection, table: str) -> dict[int, str]:
    """Return label by number of one of the export's tables of such."""
    if not table_columns(database, table).issuperset({"id", "label"}):
        return {}
    rows = database.execute(f"SELECT id, label FROM {table} LIMIT 1024")  # noqa: S608 - names are those above
    return {number: text for number, text in rows if isinstance(number, int) and isinstance(text, str)}


def session_start(database: sqlite3.Connection) -> int:
    """Return the Unix time in ns to which all times are relative, 0 where it is not told."""
    if "utcEpochNs" not in table_columns(database, "TARGET_INFO_SESSION_START_TIME"):
        return 0
    row = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1").fetchone()
    return row[0] if row is not None and isinstance(row[0], int) and row[0] >= 0 else 0


def devices(database: sqlite3.Connection) -> list[Device]:
    """Return the accelerators of the machine, at most 1,024; none without the table."""
    there = table_columns(database, "TARGET_INFO_GPU")
    wanted = [name for name in ("id", "name", "totalMemory", "smCount", "computeMajor", "computeMinor") if name in there]
    if not wanted:
        return []
    cursor = database.execute(f"SELECT {', '.join(wanted)} FROM TARGET_INFO_GPU LIMIT 1024")  # noqa: S608 - names are those above
    found = []
    for values in cursor:
        row = dict(zip(wanted, values, strict=True))
        whole = {name: value for name, value in row.items() if isinstance(value, int) and value >= 0}
        capability = f"{whole['computeMajor']}.{whole['computeMinor']}" if {"computeMajor", "computeMinor"} <= whole.keys() else ""
        found.append(
            Device(
                id=whole.get("id", 0),
                name=clean(row["name"]) if isinstance(row.get("name"), str) else "",
                memory_bytes=whole.get("totalMemory", 0),
                multiprocessors=whole.get("smCount", 0),
                compute_capability=capability,
            )
        )
    return found
