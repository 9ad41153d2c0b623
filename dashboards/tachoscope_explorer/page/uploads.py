"""Traces that somebody uploaded: in a folder of the session's own, which goes with it, and never in the store.

The columns that reading them leaves in the cache of traces go too, unless they were there before. What a killed process left behind
is removed by the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from tachoscope_analyzers.trace.reading import cache
from tachoscope_analyzers.trace.reading.decompress import Blocks
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.traces import file_name
from tachoscope_explorer.page.settings import MIB

SUFFIXES = (".json", ".json.gz", ".json.zst")
MOST_TEXT = 20
"""Uncompressed, an upload may be so many times what may be uploaded; profilers' traces compress to a 10th or a 15th."""

GONE_SECONDS = 120.0
"""A session whose browser is away for longer is taken for ended; Streamlit itself lets it come back for as long."""
_PREFIX = "tachoscope-upload-"
_LOCK, _COLUMNS = ".lock", ".columns"
_STATE = "tachoscope-uploads"


class Uploads:
    """What one session uploaded.

    Attributes:
        recordings: name and files, in the order in which they came. closed: whether all of it is gone.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # for this user's eyes only
        self._lock = (self._folder / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.recordings: list[tuple[str, tuple[Path, ...]]] = []
        self.closed = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for _, files in self.recordings for path in files)

    def add(self, files: list[tuple[str, bytes | memoryview]], *, most_bytes: int, progress: Callable[[str], None]) -> str:
        """Keep files that were uploaded together as a recording; return its name. All of them, or none.

        Args:
            files: name and content. most_bytes: of all that the session uploaded; their text may be `MOST_TEXT` times as much.
            progress: told what is being done.

        Raises:
            TachoscopeError: it is more than that, or one is not a trace, in the words of the trace reader.
        """
        total = self.size + sum(len(content) for _, content in files)
        if total > most_bytes:
            raise TachoscopeError(
                f"{total / MIB:,.1f} MiB are more than the {most_bytes / MIB:,.0f} MiB that a session may upload",
                fix="remove what you uploaded before, or put the traces into a store: tachoscope store add-traces",
            )
        name = f"upload-{len(self.recordings) + 1}"
        folder = self._folder / f"{name}-{time.monotonic_ns()}"
        folder.mkdir(mode=0o700)
        kept: list[Path] = []
        try:
            for uploaded, content in files:
                progress(f"Reading {uploaded} …")
                kept.append(self._keep(folder, uploaded, content, most_bytes * MOST_TEXT))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.recordings.append((name, tuple(sorted(kept))))
        return name

    def _keep(self, folder: Path, uploaded: str, content: bytes | memoryview, most_text: int) -> Path:
        if not uploaded.endswith(SUFFIXES):
            raise TachoscopeError(f"{uploaded} does not have the name of a trace", fix=f"traces end with {', '.join(SUFFIXES)}")
        path = folder / file_name(uploaded)
        if path.exists():
            raise TachoscopeError(f"two of the files are called {path.name}", fix="upload one after the other")
        try:
            path.write_bytes(content)
            _refuse_bomb(path, most_text)
            known = cache.find(path)
            trace = read(path)
            if known is None:
                with (self._folder / _COLUMNS).open("a") as made:
                    made.write(f"{trace.folder}\n")
        except OSError as error:
            raise TachoscopeError(
                f"could not store {uploaded}: {error.strerror}", fix="free space in the temporary folder"
            ) from None
        except TachoscopeError as error:  # where it lies here is nobody's business
            raise TachoscopeError(str(error).replace(str(path), uploaded)) from None
        return path

    def remove(self) -> None:
        """Remove the files of all recordings, and the columns that were cached of them."""
        self.recordings.clear()
        for entry in self._folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
        _discard_columns(self._folder)

    def close(self) -> None:
        """Remove all of it and the folder."""
        self.recordings.clear()
        _remove(self._folder)
        self._lock.close()
        self.closed = True


def _refuse_bomb(path: Path, most_text: int) -> None:
    """Refuse a file that inflates to far more than traces do, without holding more than a few blocks of it."""
    text = 0
    try:
        with closing(iter(Blocks(path))) as blocks:
            for block in blocks:
                text += len(block)
                if text > most_text:
                    raise TachoscopeError(
                        f"{path} inflates to more than {most_text / MIB:,.0f} MiB",
                        fix="put it into a store: tachoscope store add-traces",
                    )
    except ValueError as error:
        raise TachoscopeError(f"could not read {path}: {error}", fix="copy or record the file again") from None


def _remove(folder: Path) -> None:
    _discard_columns(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _discard_columns(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for line in (folder / _COLUMNS).read_text().splitlines():
            if Path(line).parent == cache.folder():
                cache.discard(Path(line))
        (folder / _COLUMNS).unlink()


def sweep() -> None:
    """Remove what processes left behind that were killed: nobody holds the lock of their folders."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)


_open: dict[str, Uploads] = {}
"""By session. One thread watches which sessions are gone."""
_guard = threading.Lock()
_last_seen: dict[str, float] = {}


def of_session() -> Uploads | None:
    """Return what the session that is looking uploaded; None for nothing."""
    found = st.session_state.get(_STATE)
    return found if isinstance(found, Uploads) and not found.closed else None


def session_uploads() -> Uploads:
    """Return the uploads of the session that is looking, with a folder."""
    found = of_session()
    if found is None:
        sweep()
        found = st.session_state[_STATE] = Uploads()
        context = get_script_run_ctx()
        with _guard:
            if not _open:
                threading.Thread(target=_watch, name="tachoscope-uploads", daemon=True).start()
            _open[context.session_id if context else ""] = found
    return found


def _watch() -> None:
    while True:
        time.sleep(GONE_SECONDS / 8)
        if not close_gone(time.monotonic()):
            return


def close_gone(now: float) -> int:
    """Close the uploads of sessions that nobody looks at any more; return how many are left."""
    with _guard:
        for session in list(_open):
            if runtime.exists() and runtime.get_instance().is_active_session(session):
                _last_seen[session] = now
            elif now - _last_seen.setdefault(session, now) > GONE_SECONDS:
                _open.pop(session).close()
                _last_seen.pop(session)
        return len(_open)


@atexit.register
def close_all() -> None:
    """Close all uploads: the process ends."""
    with _guard:
        for uploads in _open.values():
            uploads.close()
        _open.clear()


@contextlib.asynccontextmanager
async def served(_: object) -> AsyncIterator[None]:
    """Close all uploads when the server is told to end, also by SIGTERM, of which `atexit` does not hear."""
    yield
    close_all()
