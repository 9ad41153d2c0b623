"""Cuts a trace's text into its header, chunks of whole events, and its trailer, without parsing it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tachoscope_analyzers.trace.reading.json_brackets import BracketError, Brackets

CHUNK_BYTES = 4 << 20
LIMIT_BYTES = 64 << 20
"""More than this before the events, or without an event's end, is not a trace but somebody's attempt at filling the memory."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_LONGEST_KEY = 256
_MOST_SPACE_BYTES = 16 << 20
_LEADING = re.compile(rb"(\s{1,64}?)\{")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class NotATraceError(ValueError):
    """The text is not a trace in the Chrome format."""


class EventArray:
    """The array of events of a trace, chunk by chunk.

    Writers that break lines put the same white space between all events, and a legal JSON string holds no line break, so a search
    for it finds the events' ends. Where there is none, or `scan` is set, quotes and brackets are counted instead.

    Attributes:
        header: the text before the events with their bracket. trailer: the text after them (the first 64 MiB) with theirs.
        ended: whether the array's closing bracket was seen. cut_bytes: what stood after the last whole event when it was not.
        by_lines: whether line breaks tell where events end.
        position: bytes of text before the chunk that was given last. text_bytes: all that were read.
    """

    def __init__(self, blocks: Iterable[bytes], *, scan: bool = False) -> None:
        self._blocks = iter(blocks)
        self._buffer = b""
        self._scan = scan
        self.header = b""
        self.trailer = b""
        self.by_lines = False
        self.ended = False
        self.cut_bytes = 0
        self.position = 0
        self.text_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing: a bare list may go without its closing bracket, as the format allows."""
        return self.ended or (self.header.strip() == b"[" and not self.cut_bytes)

    def chunks(self) -> Iterator[bytes]:
        """Yield text of whole events with commas between and around them.

        Raises:
            NotATraceError: there is no array of events, or something in it has no end.
        """
        delimiter = self._begin()
        self.position = len(self.header)
        while not self.ended:
            chunk = self._next(delimiter)
            if chunk and not chunk.isspace():
                yield chunk
            elif not self.ended:
                break
            self.position += len(chunk)
        if not self.ended:
            self.cut_bytes = len(self._buffer.strip(b" \t\r\n,"))
            self._buffer = b""
        self._read_trailer()

    def array_ended_at(self, rest: bytes) -> None:
        """Tell that the array ended within the chunk that was given last; `rest` begins with its closing bracket."""
        self.ended = True
        self._buffer = rest + self._buffer

    def _next(self, delimiter: bytes | None) -> bytes:
        """Return the next chunk, b"" if the buffer has no whole event and nothing follows."""
        blocks = self._filled(CHUNK_BYTES)
        if delimiter is not None and (found := blocks[-1].rfind(delimiter)) >= 0:  # so that each byte is copied once only
            last = memoryview(blocks.pop())
            self._buffer = bytes(last[found + 1 :])
            return b"".join([*blocks, last[: found + 1]])
        self._buffer = b"".join(blocks)
        end = self._end_of_chunk(delimiter)
        chunk, self._buffer = self._buffer[:end], self._buffer[end:]
        return chunk

    def _fill(self, size: int) -> bool:
        """Read until `size` bytes are buffered; False at the end of the file."""
        blocks = self._filled(size)
        self._buffer = b"".join(blocks)
        return len(blocks) > 1

    def _filled(self, size: int) -> list[bytes]:
        """Return what is buffered and, until there are `size` bytes, the blocks after it."""
        blocks, have = [self._buffer], len(self._buffer)
        while have < size and (block := next(self._blocks, None)) is not None:
            blocks.append(block)
            have += len(block)
            self.text_bytes += len(block)
        return blocks

    def _begin(self) -> bytes | None:
        """Read the header, and return the separator between events if it has a line break."""
        while not self._buffer.strip() and self._fill(len(self._buffer) + 1):
            if len(self._buffer) > _MOST_SPACE_BYTES:
                raise NotATraceError("it begins with nothing but white space")
        self._fill(len(_BYTE_ORDER_MARK))
        self._buffer = self._buffer.removeprefix(_BYTE_ORDER_MARK)
        end = self._buffer.index(b"[") + 1 if self._buffer.lstrip().startswith(b"[") else self._after_key()
        self.header, self._buffer = self._buffer[:end], self._buffer[end:]
        self._fill(_LONGEST_KEY)
        leading = None if self._scan else _LEADING.match(self._buffer)
        self.by_lines = leading is not None and b"\n" in leading.group(1)
        return b"}," + leading.group(1) + b"{" if leading is not None and self.by_lines else None

    def _after_key(self) -> int:
        searched = 0
        while (found := _EVENTS_KEY.search(self._buffer, searched)) is None:
            searched = max(0, len(self._buffer) - _LONGEST_KEY)
            if len(self._buffer) > LIMIT_BYTES or not self._fill(len(self._buffer) + CHUNK_BYTES):
                raise NotATraceError('it has no list of events ("traceEvents")')
        return found.end()

    def _end_of_chunk(self, delimiter: bytes | None) -> int:
        """Return the length of the chunk, 0 if the buffer has no whole event and nothing follows."""
        if delimiter is not None and (found := self._buffer.rfind(delimiter)) >= 0:
            return found + 1
        brackets, counted = Brackets(), 0
        try:
            while True:
                end, closed = brackets.last_end(self._buffer[counted:])
                if closed is not None:
                    self.ended = True
                    return counted + closed
                if end:
                    return counted + end
                counted = len(self._buffer)
                if counted > LIMIT_BYTES:
                    raise NotATraceError(f"{LIMIT_BYTES >> 20} MiB of it contain no complete event")
                if not self._fill(counted + CHUNK_BYTES):
                    return 0
        except BracketError as error:
            raise NotATraceError(str(error)) from None

    def _read_trailer(self) -> None:
        self._fill(LIMIT_BYTES)
        self.trailer, self._buffer = self._buffer[:LIMIT_BYTES], b""
        for block in self._blocks:  # to the end, for the digest
            self.text_bytes += len(block)
