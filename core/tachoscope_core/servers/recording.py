"""Recordings of a server's metrics page: the lines that its catalogue reads, look after look, compressed.

A look begins with a line `# look <Unix seconds> <seconds it took> <fault, or nothing>`; its page follows as it was served, for
later versions to read more from it. Of a recording whose end is cut off, the looks that are whole count. Before the first look a
line `# server <make>` says whose pages they are; where it is missing, or names none that is known, the pages are looked at.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.servers import SERVERS, Catalogue, catalogue, metrics_page
from tachoscope_core.servers.snapshot import Snapshot

MAGIC = "# tachoscope recording of an inference server's metrics, form 1"
SUFFIX = ".serving.gz"
MAX_BYTES = 1 << 30
"""A recording that unpacks to more is refused."""
_OURS = (MAGIC, "# server ", "# look ")
_LINE_BYTES = 1 << 20


def write(path: Path, looks: Iterable[tuple[Snapshot, str]], server: Catalogue | None = None) -> None:
    """Write looks with their pages as they come; the names of the metrics that are kept are those of the catalogue.

    Args:
        server: whose pages they are; default: whose the first page is. Without a page no file is written.

    Raises:
        TachoscopeError: the file cannot be written.
    """
    texts = _texts(looks, server)
    first = next(texts, None)
    if first is None:
        return
    try:
        with gzip.open(path, "wt", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(first)
            file.writelines(texts)
    except OSError as error:
        raise TachoscopeError(f"could not write {path}: {error.strerror}") from None


def _texts(looks: Iterable[tuple[Snapshot, str]], server: Catalogue | None) -> Iterator[str]:
    """Yield the head and each look; looks before the first page wait, since the head names the server."""
    waiting: list[str] = []
    kept: tuple[str, ...] = ()
    for look, page in looks:
        waiting.append(f"# look {look.time!r} {look.seconds!r} {' '.join(look.fault.split())}".rstrip() + "\n")
        server = server or (catalogue(look.server) if look.server else None)
        if server is None:
            continue
        if not kept:
            kept = tuple(spelt for name in sorted(server.metrics()) for spelt in metrics_page.spellings(name))
            waiting.insert(0, f"{MAGIC}\n# server {server.server}\n")
        yield "".join(waiting)
        waiting.clear()
        yield "".join(f"{line}\n" for line in metrics_page.lines(page) if line.startswith(kept))


def is_recording(path: Path) -> bool:
    """Return whether it is such a file, by its first line."""
    try:
        with gzip.open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC.encode()
    except (OSError, EOFError, zlib.error):
        return False


def read(path: Path) -> list[Snapshot]:
    """Return the looks of a recording in their order; of one whose end is cut off, those that are whole.

    Raises:
        TachoscopeError: it cannot be read, or is not a recording.
    """
    found: list[Snapshot] = []
    server: Catalogue | None = None
    for head, page in _blocks(path):
        kind, _, rest = head[2:].partition(" ")
        if kind == "server":
            server = catalogue(rest) if rest in SERVERS else None
        elif kind == "look":
            found.append(_snapshot(rest, page, server, path))
    if not found:
        raise TachoscopeError(f"{path} contains no samples")
    return found


def _snapshot(head: str, page: str, server: Catalogue | None, path: Path) -> Snapshot:
    words = head.split(" ", 2)
    try:
        time, seconds = map(float, words[:2])
    except ValueError:
        time = seconds = math.nan
    if not (math.isfinite(time) and math.isfinite(seconds)):
        raise TachoscopeError(f"{path}: '# look {head[:80]}' is not the head of a look")
    if len(words) > 2:
        return Snapshot(time=time, seconds=seconds, fault=words[2])
    try:
        return replace(metrics_page.read(page, time, server=server), seconds=seconds)
    except TachoscopeError as error:
        raise TachoscopeError(f"{path}: the reading of {time:.3f}: {error}") from None


def _blocks(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each of our lines with those up to the next; not the last one of a truncated file."""
    head, page = "", list[str]()
    try:
        for line in _lines(path):
            if line.startswith(_OURS):
                if head:
                    yield head, "".join(page)
                head, page = line.rstrip("\n"), []
            elif not head:
                raise TachoscopeError(f"{path} is not a recording of an inference server's metrics")
            else:
                page.append(line)
    except EOFError:
        return
    if head:
        yield head, "".join(page)


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines, very long ones in pieces. EOFError: the file is cut off."""
    size = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
            while line := file.readline(_LINE_BYTES):
                size += len(line)
                if size > MAX_BYTES:
                    raise TachoscopeError(f"{path} unpacks to more than {MAX_BYTES >> 20} MiB")
                yield line
    except (OSError, zlib.error) as error:
        raise TachoscopeError(f"could not read {path}: {error}") from None
