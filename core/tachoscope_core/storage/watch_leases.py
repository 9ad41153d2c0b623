"""What the watches that share a store's jobs say there: each its lease, `watches/<watch>.lease.json`, and what it found,
`watches/<watch>.views.json.gz`.

A lease holds from the time at which the store wrote it: watches compare only such times with each other, so their own clocks do not
count. Each object has one writer, and no two watches have the same name: nothing here needs a conditional write, only that a list
shows what was written before, as those of directories and of S3 do.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store, is_trusted, unpacked, written_time

MAX_VIEWS_BYTES = 256 << 20
"""Of one watch, unpacked: some ten thousand jobs of 64 ranks."""
_NAME = re.compile(r"(?P<watch>[A-Za-z0-9._-]{1,128})\.(?P<kind>lease\.json|views\.json\.gz)")


class Lease(msgspec.Struct, frozen=True):
    """A watch lives.

    Attributes:
        seconds: so long after it was written the lease holds.
        since: from when on it takes its part of the jobs, in Unix seconds by the store's clock; None: it has just come.
    """

    watch: str
    seconds: float
    since: float | None = None


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease, and when it was written: Unix seconds by the store's clock."""

    lease: Lease
    path: str
    written: float


@dataclass(frozen=True, slots=True)
class StoredViews:
    """An object of what a watch found. `mark` differs from that of the object before; `written`: as of a lease."""

    path: str
    written: float
    mark: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WatchesRead:
    """The objects of all watches, by watch."""

    leases: Mapping[str, StoredLease]
    views: Mapping[str, StoredViews]


def write_lease(store: Store, lease: Lease) -> None:
    """Write a watch's lease in place of the one before. Raises TachoscopeError if the store does not take it."""
    store.write_watch(f"{lease.watch}.lease.json", msgspec.json.encode(lease))


def write_views(store: Store, watch: str, document: bytes) -> None:
    """Write what a watch found in place of what it found before. Raises TachoscopeError if the store does not take it."""
    store.write_watch(f"{watch}.views.json.gz", gzip.compress(document, compresslevel=1, mtime=0))


def read_watches(store: Store) -> WatchesRead:
    """Return what all watches wrote. In a directory, what other users wrote does not count.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    leases: dict[str, StoredLease] = {}
    views: dict[str, StoredViews] = {}
    for path, entry in store.find("watches").items():
        match = _NAME.fullmatch(path.rsplit("/", 1)[-1])
        if match is None or (store.local and not is_trusted(int(entry["uid"]))):
            continue
        watch, written = match["watch"], written_time(entry)
        if match["kind"] == "views.json.gz":
            views[watch] = StoredViews(path, written, (written, entry.get("ETag"), entry.get("ino"), entry.get("size")))
        elif (lease := _lease(store, path)) is not None and lease.watch == watch:
            leases[watch] = StoredLease(lease, path, written)
    return WatchesRead(leases, views)


def _lease(store: Store, path: str) -> Lease | None:
    """Return a lease; None: it is gone, or none. Raises TachoscopeError if it cannot be read."""
    try:
        return msgspec.json.decode(store.files.cat_file(path), type=Lease)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    except Exception as error:
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None


def read_views(store: Store, path: str) -> bytes | None:
    """Return the document of `write_views`; None: it is gone.

    Raises:
        TachoscopeError: it cannot be read.
    """
    try:
        return unpacked(store.files.cat_file(path), MAX_VIEWS_BYTES)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None
