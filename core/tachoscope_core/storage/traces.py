"""Profiler traces in a store, beside the records of the job that they are of.

`jobs/<job>/traces/<recording>/<file>`: a recording is what was recorded together, one file for each rank, named as jobs are
(`20261122T201500Z-steps-20-24`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage import cache_dir
from tachoscope_core.storage.store import Store, written_time
from tachoscope_core.storage.trace_names import SUFFIXES

CACHE_BYTES = 20 << 30
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@,-]{0,254}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@,-]")
_COPY_BYTES = 1 << 20
_UNFINISHED = ".partial-"

Progress = Callable[[int, int], None]
"""Called with the bytes that were copied, and all there are."""


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace file in a store. `path`: as the store's backend names it. `bytes`: of the file. `written`: Unix seconds."""

    recording: str
    file: str
    path: str
    bytes: int
    written: float


def recording_name(time: float, what: str = "") -> str:
    """Return a name for what was recorded at a Unix time, in order of time: `20261122T201500Z`, with `what` after it."""
    return "-".join(filter(None, (f"{datetime.fromtimestamp(time, UTC):%Y%m%dT%H%M%SZ}", what)))


def file_name(name: str) -> str:
    """Return a file's name as it can stand in a store: what is neither letter nor digit nor `. _ + = @ , -` becomes `_`."""
    return _UNSAFE.sub("_", name).lstrip(".+=@,-")[-255:] or "trace"


def traces(store: Store, job: str) -> list[StoredTrace]:
    """Return the traces of a job: the recording written last first, files in order of their names; none where there are none.

    Objects that are named as no trace is are left out.

    Raises:
        TachoscopeError: the store cannot be read, or the job's name is none.
    """
    key = f"jobs/{check_job_name(job)}/traces"
    root = f"{store.root}/{key}"
    found = [trace for path, entry in store.find(key).items() if (trace := _trace(root, path, entry)) is not None]
    newest: dict[str, float] = {}
    for trace in found:
        newest[trace.recording] = max(trace.written, newest.get(trace.recording, 0.0))
    return sorted(found, key=lambda trace: (-newest[trace.recording], trace.recording, trace.file))


def _trace(root: str, path: str, entry: dict[str, Any]) -> StoredTrace | None:
    recording, _, file = path.removeprefix(f"{root}/").rpartition("/")
    if not file.endswith(SUFFIXES) or not _FILE.fullmatch(file):
        return None
    try:
        check_job_name(recording)
    except TachoscopeError:
        return None
    return StoredTrace(recording, file, path, int(entry.get("size") or 0), written_time(entry))


def write(store: Store, job: str, recording: str, file: Path, *, name: str = "", progress: Progress | None = None) -> StoredTrace:
    """Copy a trace into a store piece by piece; it appears there whole or not at all. One of the same name is replaced.

    Args:
        name: of the file in the store; default: the file's own, with what a store cannot name replaced.

    Raises:
        TachoscopeError: the file cannot be read, the store cannot be written, or a name cannot be.
    """
    name = file_name(name or file.name)
    _check_recording(recording)
    if not name.endswith(SUFFIXES):
        raise TachoscopeError(f"{file} does not have the name of a trace", fix=f"traces end with {', '.join(SUFFIXES)}")
    folder = f"{store.root}/jobs/{check_job_name(job)}/traces/{recording}"
    path = f"{folder}/{name}"
    try:
        store.files.makedirs(folder, exist_ok=True)
        if store.local:
            _copied(store, file, f"{folder}/.{name}.partial", path, progress)
        else:
            _uploaded(store, file, path, progress)
        entry = store.files.info(path)
    except TachoscopeError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise TachoscopeError(f"could not write {file} to {path} in store {store.url}: {reason}") from None
    found = _trace(f"{store.root}/jobs/{job}/traces", path, entry)
    assert found is not None, "its names were checked"
    return found


def _check_recording(name: str) -> None:
    try:
        check_job_name(name)
    except TachoscopeError as error:
        raise TachoscopeError(str(error).replace("job name", "a recording's name", 1)) from None


def _copied(store: Store, file: Path, temporary: str, path: str, progress: Progress | None) -> None:
    try:
        with file.open("rb") as source, store.files.open(temporary, "wb") as target:
            for piece in _pieces(source, file.stat().st_size, progress):
                target.write(piece)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _uploaded(store: Store, file: Path, path: str, progress: Progress | None) -> None:
    """Write an object in parts; an object store shows it once complete."""
    with file.open("rb") as source:
        target = store.files.open(path, "wb")
        try:
            for piece in _pieces(source, file.stat().st_size, progress):
                target.write(piece)
        except BaseException:
            target.closed = True  # else its end would complete the object
            with contextlib.suppress(Exception):
                target.discard()
            raise
        target.close()


def _pieces(source: Any, total: int, progress: Progress | None) -> Iterator[bytes]:
    done = 0
    while piece := source.read(_COPY_BYTES):
        yield piece
        done += len(piece)
        if progress is not None:
            progress(done, total)


def local_path(store: Store, trace: StoredTrace) -> Path:
    """Return where on this machine a stored trace is, or will be when `local` was asked for it.

    Raises:
        TachoscopeError: the store is a directory, and it is not there or is a link to what lies outside of the store.
    """
    if store.local:
        return _confined(store, trace.path)
    key = hashlib.sha256(f"{store.url}\0{trace.path}\0{trace.bytes}\0{trace.written}".encode()).hexdigest()
    return cache_dir.folder("store-traces") / key / trace.file


def local(store: Store, trace: StoredTrace, *, progress: Progress | None = None, most_bytes: int = CACHE_BYTES) -> Path:
    """Return a stored trace as a file of this machine: itself where the store is a directory, else a copy that is kept.

    Args:
        most_bytes: that all copies may take together; those used longest ago go.

    Raises:
        TachoscopeError: it cannot be read, or is a link to what lies outside of the store.
    """
    copy = local_path(store, trace)
    if store.local:
        return copy
    folder, key = copy.parent.parent, copy.parent.name
    with contextlib.suppress(OSError):
        os.utime(copy.parent)
        if copy.stat().st_size == trace.bytes:
            return copy
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    except OSError as error:
        raise TachoscopeError(
            f"could not copy {trace.path} in {folder}: {error.strerror}", fix="set TACHOSCOPE_CACHE to a folder with room"
        ) from None
    try:
        with store.files.open(trace.path, "rb") as source, (unfinished / trace.file).open("wb") as target:
            for piece in _pieces(source, trace.bytes, progress):
                target.write(piece)
        with contextlib.suppress(OSError):  # another process was first
            unfinished.rename(copy.parent)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise TachoscopeError(f"could not read {trace.path} in store {store.url}: {reason}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _prune(folder, key, most_bytes)
    return copy


def _confined(store: Store, path: str) -> Path:
    """Return a path within a directory store, links resolved; raise if it leads elsewhere."""
    try:
        found = Path(path).resolve(strict=True)
        root = Path(store.root).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None
    if not found.is_relative_to(root):
        raise TachoscopeError(f"{path} leads out of the store", fix="put the file itself into the store, not a link to it")
    return found


def _prune(folder: Path, keep: str, most_bytes: int) -> None:
    entries = []
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            if not entry.name.startswith(_UNFINISHED):
                entries.append((entry.stat().st_mtime, sum(file.stat().st_size for file in entry.iterdir()), entry))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total > most_bytes and entry.name != keep:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size
