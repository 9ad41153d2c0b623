"""Files of `torch.save` that no manifest was taken of: they are zip files, and each record in them carries a CRC-32.

They say less than a manifest: the padding before records has none, and a program that changed a record changed its CRC as well.
Nothing is unpickled. What `torch.save` does not write (compression, records that overlap) is not read. A file that is not a single
archive from its first byte to its last is not judged: of several, one after the other, as `torch.distributed.checkpoint` writes
them, readers of zip files see the last only.
"""

from __future__ import annotations

import os
import struct
import time
import zipfile
from collections.abc import Callable
from io import FileIO

from tachoscope_core.checkpoints.verification import ReadBack, open_regular

MAX_DIRECTORY_BYTES = 64 << 20
"""Largest table of contents that is read: it is read at once, and that of the largest checkpoints has some megabytes."""
_CHUNK_BYTES = 1 << 20
_MAGIC = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<26x2H")
"""What stands before a record's name; of it, the lengths of the name and of the extra field after it, which holds the padding."""
_HAS_DESCRIPTOR = 0x8
_DESCRIPTOR_MAGIC = b"PK\x07\x08"
_DESCRIPTOR = struct.Struct("<4sLLL")
_DESCRIPTOR64 = struct.Struct("<4sLQQ")
"""What stands behind a record: its CRC-32 and, twice, its length, once more."""
_END_MAGIC = b"PK\x05\x06"
_END = struct.Struct("<12x2L2x")
"""What an archive ends with; of it, the length and the place of the table of contents. Last comes the length of a comment."""
_END64_BYTES = 76
"""What stands between the table of contents and the end where 64-bit lengths are written, as `torch.save` always does."""
_IN_64_BITS = 0xFFFFFFFF
_NO_COMMENT = b"\0\0"
_NOT_ONE_ARCHIVE = "it is not a single zip archive"


class _TooLongError(Exception):
    """More would be read at once than a table of contents of `torch.save` has."""


class _Bounded(FileIO):
    """A file that is never read whole."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > MAX_DIRECTORY_BYTES:
            raise _TooLongError
        return super().read(size)


def begins_as_zip(path: str) -> bool:
    """Return whether a path is a regular file that begins as those of `torch.save` do."""
    try:
        with open_regular(path) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def verify_zip(path: str, *, on_bytes: Callable[[int], None] | None = None) -> ReadBack:
    """Read a file of `torch.save` and hold its records against their CRC-32.

    Args:
        path: absolute. on_bytes: called with the length of each chunk that was read.
    """
    began = time.monotonic()
    try:
        with open_regular(path) as file:
            begins = file.read(len(_MAGIC))
            size = file.seek(0, 2)
    except OSError as error:
        return ReadBack("unreachable", f"{path}: {error.strerror or error}")
    if begins != _MAGIC:
        return ReadBack("unverifiable", "not verified: no manifest, and no zip file as torch.save writes")
    fault = ""
    try:
        if why := _not_judged(path, size, on_bytes):
            return ReadBack("unverifiable", f"not verified: no manifest, and {why}")
    except _TooLongError:
        return ReadBack("unverifiable", "not verified: no manifest, and its table of contents is longer than torch.save's")
    except OSError as error:
        fault = f"cannot be read back: {error.strerror or error}"
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        # EOFError: the file ends within a record; the last two: a name or a version in the table of contents is garbage.
        fault = str(error) or "it ends within a record"
    return ReadBack("corrupt" if fault else "sound", fault and f"{path}: {fault}", size, time.monotonic() - began)


def _not_judged(path: str, size: int, on_bytes: Callable[[int], None] | None) -> str:
    """Read the records, and return why nothing can be said of the file though they are sound; empty: they are all that is in it.

    Raises:
        zipfile.BadZipFile, EOFError, ValueError, NotImplementedError: the file is damaged.
        OSError: it cannot be read. _TooLongError: it should not be.
    """
    with _Bounded(path) as file:
        file.seek(max(size - _END.size, 0))
        end = file.read(_END.size)
        if not (end.startswith(_END_MAGIC) and end.endswith(_NO_COMMENT)):
            if _ends_within(file, size):
                return _NOT_ONE_ARCHIVE
            raise zipfile.BadZipFile("it has no end of a zip archive")
        with zipfile.ZipFile(file) as archive:
            if why := _unlike_torch(archive.infolist(), size):
                return why
            for record in archive.infolist():
                with archive.open(record) as content:
                    while chunk := content.read(_CHUNK_BYTES):
                        if on_bytes is not None:
                            on_bytes(len(chunk))
            return "" if _is_whole_file(archive, file) else _NOT_ONE_ARCHIVE


def _unlike_torch(records: list[zipfile.ZipInfo], size: int) -> str:
    """Return why these records cannot be compared with their CRC-32, or an empty string."""
    if any(_is_packed(record) for record in records):
        return "it is compressed or encrypted, which torch.save's files are not"
    if sum(record.file_size for record in records) > size:
        return "its records are longer than the file"
    filled = [record for record in records if record.file_size]
    if not any(record.CRC for record in filled):  # torch.serialization.set_crc32_options(False)
        return "it was written without CRC-32"
    if not any(record.filename.endswith("/data.pkl") for record in records):  # what a save leaves that failed half-way
        return "it has no data.pkl, which torch.save's files have"
    return ""


def _is_packed(record: zipfile.ZipInfo) -> bool:
    encrypted = record.flag_bits & 0x1
    return bool(encrypted) or record.compress_type != zipfile.ZIP_STORED or record.compress_size != record.file_size


def _is_whole_file(archive: zipfile.ZipFile, file: FileIO) -> bool:
    """Whether record follows record from the first byte of the file to the table of contents, which the file's end follows."""
    at = 0
    for record in sorted(archive.infolist(), key=lambda record: record.header_offset):
        if record.header_offset != at:
            return False
        file.seek(at)
        name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        at += _LOCAL_HEADER.size + name + extra + record.file_size
        if record.flag_bits & _HAS_DESCRIPTOR:
            file.seek(at)
            length = _descriptor_length(record, file.read(_DESCRIPTOR64.size))
            if not length:
                return False
            at += length
    return at == archive.start_dir


def _descriptor_length(record: zipfile.ZipInfo, behind: bytes) -> int:
    """Return the length of the descriptor that these bytes behind a record begin with; 0: it is none of this record."""
    sums = (_DESCRIPTOR_MAGIC, record.CRC, record.file_size, record.file_size)
    if behind == _DESCRIPTOR64.pack(*sums):
        return _DESCRIPTOR64.size
    fits = record.file_size <= _IN_64_BITS
    return _DESCRIPTOR.size if fits and behind.startswith(_DESCRIPTOR.pack(*sums)) else 0


def _ends_within(file: FileIO, size: int) -> bool:
    """Whether an archive that begins with the file ends before it: then something follows, and the file was not cut short."""
    window, at = b"", file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        window += chunk
        found = window.find(_END_MAGIC)
        while 0 <= found <= len(window) - _END.size:
            length, place = _END.unpack_from(window, found)
            between = at + found - place - length
            if at + found + _END.size < size and (between in {0, _END64_BYTES} or place == _IN_64_BITS):
                return True
            found = window.find(_END_MAGIC, found + 1)
        at += max(len(window) - _END.size + 1, 0)
        window = window[1 - _END.size :]
    return False
