"""Ledger rows: what each rank of a job did in each 10 s, as the agent of its node accounted it.

`jobs/<job>/ledger/host=<host>/date=<day>/<began>-<window>.json.gz`: the rows of one node since it last wrote some. `began`: when
its agent began to count the job, in Unix seconds. `window`: the first of the rows. What is written again replaces what was there,
or repeats it: a row is known by node, attempt, rank and window, and never changes.

A row holds what the agent accounted while the window lasted by the node's clock: a step counts whole where the agent read its end,
and after a time without an agent one row holds more than 10 s. Seconds are whole tenths, rounded so that the sum of the rows of a
rank is within half a tenth of its counter, however many they are. Beside them stand the counters themselves, unrounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from tachoscope_core.storage.store import BrokenObjectError, Store, host_folder

WINDOW_SECONDS = 10.0
_KEY = re.compile(r"/host=(?P<host>[^/]+)/date=[^/]+/(?P<began>\d{1,12})-(?P<window>\d{1,12})\.json\.gz$")


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A rank in a window.

    Attributes:
        window: its number: Unix seconds of its begin, divided by `WINDOW_SECONDS`.
        steps: that ended. slowest_ms: milliseconds of the longest of them. tenths: of seconds, by ledger state.
    """

    rank: int
    attempt: int
    window: int
    steps: int = 0
    slowest_ms: int = 0
    tenths: dict[str, int] = {}

    def plus(self, later: Row) -> Row:
        """Return this row and a later one of the same rank as one, in the later one's window."""
        tenths = {state: self.tenths.get(state, 0) + later.tenths.get(state, 0) for state in self.tenths | later.tenths}
        slowest = max(self.slowest_ms, later.slowest_ms)
        return Row(later.rank, later.attempt, later.window, self.steps + later.steps, slowest, tenths)


class RankRows(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rows of a rank in an attempt, as columns of equal length in the order of `windows`: see `Row`."""

    rank: int
    attempt: int = 0
    windows: list[int] = []
    steps: list[int] = []
    slowest_ms: list[int] = []
    tenths: dict[str, list[int]] = {}


class NodeRows(msgspec.Struct, frozen=True):
    """An object of rows.

    Attributes:
        began: Unix seconds since which the node's agent counts the job. time: when it wrote this, Unix seconds.
        state_seconds: by ledger state from then until now, of all ranks and attempts: the agent's counters. counted: these ranks.
    """

    node: str
    began: int
    time: float
    state_seconds: dict[str, float]
    counted: list[int]
    ranks: list[RankRows]


def in_columns(rows: Iterable[Row]) -> list[RankRows]:
    """Return rows by rank and attempt, each in the order of its windows."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.rank, row.attempt), []).append(row)
    return [_columns(sorted(own, key=lambda row: row.window)) for _, own in sorted(found.items())]


def _columns(rows: list[Row]) -> RankRows:
    states = dict.fromkeys(state for row in rows for state in row.tenths)
    return RankRows(
        rows[0].rank,
        rows[0].attempt,
        [row.window for row in rows],
        [row.steps for row in rows],
        [row.slowest_ms for row in rows],
        {state: [row.tenths.get(state, 0) for row in rows] for state in states},
    )


def is_whole(rows: RankRows) -> bool:
    """Return whether all columns have the same length."""
    return {len(rows.windows)} == {len(one) for one in (rows.steps, rows.slowest_ms, *rows.tenths.values())}


def in_rows(ranks: Iterable[RankRows]) -> Iterator[Row]:
    """Yield the rows of columns; those of a rank whose columns do not fit together are left out."""
    for own in ranks:
        if is_whole(own):
            for place, window in enumerate(own.windows):
                tenths = {state: values[place] for state, values in own.tenths.items() if values[place]}
                yield Row(own.rank, own.attempt, window, own.steps[place], own.slowest_ms[place], tenths)


def write(store: Store, job: str, rows: NodeRows) -> str:
    """Write an object of rows, at least one; return its path. Raises TachoscopeError if the store does not take it."""
    first = min(one.windows[0] for one in rows.ranks)
    day = datetime.fromtimestamp(first * WINDOW_SECONDS, UTC).date()
    key = f"host={host_folder(rows.node)}/date={day}/{rows.began}-{first}"
    return store.write_ledger(job, key, msgspec.json.encode(rows))


def read_all(store: Store, job: str) -> Iterator[NodeRows]:
    """Yield all objects of rows of a job, those of each node in the order in which they were written.

    Raises:
        TachoscopeError: the store cannot be read.
        BrokenObjectError: an object is not what an agent writes.
    """
    for path in store.find(f"jobs/{job}/ledger"):
        yield _read(store, path)


def last_words(store: Store, job: str, *, but: Iterable[str]) -> Iterator[NodeRows]:
    """Yield the newest object of each node of a job but some, by name: two or three listings a node, however long the job lasts.

    Raises: see `read_all`.
    """
    root = f"{store.root}/jobs/{job}/ledger"
    known = {f"{root}/host={host_folder(node)}" for node in but}
    for host in store.folders(root):
        if host not in known:
            paths = [path for day in store.folders(host)[-1:] for path in store.find(day.removeprefix(f"{store.root}/"))]
            if paths:
                yield _read(store, paths[-1])


def last_objects(store: Store, job: str) -> Iterator[NodeRows]:
    """Yield the newest object of each node and of each time that its agent began to count: one listing, however many there are.

    Raises: see `read_all`.
    """
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for path in store.find(f"jobs/{job}/ledger"):
        match = _KEY.search(path)
        if match is not None:
            of, window = (match["host"], match["began"]), int(match["window"])
            last[of] = max(last.get(of, (-1, "")), (window, path))
    for _, path in last.values():
        yield _read(store, path)


def _read(store: Store, path: str) -> NodeRows:
    try:
        return msgspec.json.decode(store.read_lines(path), type=NodeRows)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BrokenObjectError(f"{path} in store {store.url} is not what an agent writes: {error}", fix="remove it") from None


def merged(objects: Iterable[NodeRows]) -> dict[tuple[str, int, int, int], Row]:
    """Return the rows of some objects by node, attempt, rank and window: each once, however often and in which order they came."""
    return {(one.node, row.attempt, row.rank, row.window): row for one in objects for row in in_rows(one.ranks)}


def seconds_of(rows: Iterable[Row]) -> dict[str, float]:
    """Return seconds by state of some rows together."""
    total: dict[str, int] = {}
    for row in rows:
        for state, tenths in row.tenths.items():
            total[state] = total.get(state, 0) + tenths
    return {state: tenths / 10 for state, tenths in total.items()}
