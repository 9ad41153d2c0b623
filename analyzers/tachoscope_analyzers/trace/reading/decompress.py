"""The bytes of a file, decompressed and hashed block by block in a thread of its own."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any, cast

import zstandard
from isal import igzip_lib, isal_zlib

_READ_BYTES = 256 << 10
_BLOCK_BYTES = 2 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_DAMAGED = (cast("type[Exception]", igzip_lib.IsalError), zstandard.ZstdError)
_MOST_WINDOW_BYTES = 128 << 20
"""What `zstd` itself accepts unless it is told to take more."""


class Blocks:
    """Iterates over the decompressed blocks of a file (plain, gzip or zstandard, in several members too), once.

    The file is read ahead by at most a few blocks, so memory stays flat whatever the file holds. Close the iterator if it is not
    read to its end. A compressed file that ends early gives what it has.

    Attributes:
        cut: whether a gzip file ended early. digest: SHA-256 of the file as it lies there; both are known after the last block.
        bytes_read: of the file, so far.

    Raises:
        OSError: the file cannot be read.
        ValueError: its compressed data are damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = False
        self.digest = ""
        self.bytes_read = 0
        self._queue: queue.Queue[bytes | Exception | None] = queue.Queue(maxsize=4)
        self._stopped = threading.Event()

    def __iter__(self) -> Generator[bytes, None, None]:
        thread = threading.Thread(target=self._produce, name="tachoscope-inflate", daemon=True)
        thread.start()
        try:
            while (block := self._queue.get()) is not None:
                if isinstance(block, Exception):
                    raise block
                yield block
        finally:
            self._stopped.set()
            while thread.is_alive():  # it may stand before a full queue
                try:
                    self._queue.get(timeout=0.01)
                except queue.Empty:
                    continue

    def _produce(self) -> None:
        try:
            for block in self._blocks():
                if self._stopped.is_set():
                    return
                if block:
                    self._queue.put(block)
            self._queue.put(None)
        except Exception as error:
            self._queue.put(error)

    def _blocks(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            first = file.read(4)
            file.seek(0)
            pieces = self._pieces(file, digest)
            try:
                if first[:2] == _GZIP:
                    yield from self._gunzip(pieces)
                elif first == _ZSTD:
                    yield from _unzstd(pieces)
                else:
                    yield from pieces
            except _DAMAGED as error:
                raise ValueError(f"its compressed data are damaged: {error}") from None
            for _ in pieces:  # what follows the last member belongs to the digest all the same
                pass
        self.digest = digest.hexdigest()

    def _pieces(self, file: IO[bytes], digest: Any) -> Iterator[bytes]:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
            self.bytes_read += len(piece)
            yield piece

    def _gunzip(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        member = isal_zlib.decompressobj(wbits=31)
        for piece in pieces:
            data = piece
            while data:
                if member.eof:
                    if not data.startswith(_GZIP[: len(data)]):
                        return  # padding or a signature after the last member
                    member = isal_zlib.decompressobj(wbits=31)
                yield member.decompress(data, _BLOCK_BYTES)
                data = member.unconsumed_tail or member.unused_data
        if not member.eof:
            yield member.flush()
            self.cut = not member.eof


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    # A few bytes of a frame may inflate to gigabytes; this reader gives no more than it is asked for.
    frames = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
    with frames.stream_reader(cast("IO[bytes]", _Joined(pieces)), read_across_frames=True) as reader:
        while block := reader.read(_BLOCK_BYTES):
            yield block


class _Joined:
    """A file object over an iterator of pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        data = self._rest or next(self._pieces, b"")
        self._rest = data[size:]
        return data[:size]
