"""What must outlive the agent: how far each segment was shipped, and which range is being shipped.

A range is noted here before it goes to the store. After a crash the same range goes again, under the same key, so that it is in
the store once. SQLite in WAL mode without a sync at each commit: a killed agent loses nothing. A power failure may lose
the last commits; then ranges are shipped again, and readers drop the records that they have already seen.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tachoscope_core.errors import TachoscopeError, not_written

_TABLE = """
CREATE TABLE IF NOT EXISTS segments (
  directory TEXT NOT NULL, name TEXT NOT NULL, inode INTEGER NOT NULL,
  shipped INTEGER NOT NULL, pending INTEGER NOT NULL,
  job TEXT NOT NULL, attempt INTEGER NOT NULL, time REAL NOT NULL,
  PRIMARY KEY (directory, name)
) WITHOUT ROWID
"""


class Entry(msgspec.Struct, frozen=True):
    """A segment as the journal knows it.

    Attributes:
        inode: of the file, to tell it from another of the same name. shipped: offset up to which the store has it.
        pending: offset up to which it is being shipped; equal to `shipped` when it is not.
        job, attempt, time: where it belongs in the store, from its first record; the same for all its ranges.
    """

    directory: str
    name: str
    inode: int
    shipped: int
    pending: int
    job: str
    attempt: int
    time: float


class Journal:
    """The journal in a file. Methods raise `TachoscopeError` when it cannot be written, and change nothing then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                self._connection = self._open()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # no permission, no space: it is sound as far as is known
                    raise
                # Better to ship twice, which readers put right, than not at all.
                path.replace(path.with_name(f"{path.name}.broken-{time.time():.0f}"))
                self._connection = self._open()
        except (OSError, sqlite3.Error) as error:
            raise TachoscopeError(
                f"could not open the journal {path}: {error}", fix="choose another directory with state:"
            ) from None

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=5.0, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA cache_size=-256")
        connection.execute(_TABLE)
        return connection

    def load(self) -> list[Entry]:
        return [Entry(*row) for row in self._connection.execute("SELECT * FROM segments")]

    def write(self, entries: Iterable[Entry]) -> None:
        """Note entries in one transaction: all or none."""
        rows = [msgspec.structs.astuple(entry) for entry in entries]
        self._transaction("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def remove_segments(self, keys: Iterable[tuple[str, str]]) -> None:
        self._transaction("DELETE FROM segments WHERE directory = ? AND name = ?", list(keys))

    def _transaction(self, statement: str, rows: list[tuple[object, ...]] | list[tuple[str, str]]) -> None:
        if not rows:
            return
        try:
            self._connection.execute("BEGIN")
            try:
                self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise not_written(f"the journal {self._path}", error) from None

    def close(self) -> None:
        self._connection.close()
