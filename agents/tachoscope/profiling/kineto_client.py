"""Asks the node's agent whether this process shall record a profile, as kineto does where `KINETO_USE_DAEMON` is set.

Kineto believes whoever has the socket's name, and any user may take that. Here only root and the process's own user are believed,
and only a folder that is the user's alone is written to.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tachoscope_core.net.kineto_protocol import ABSTRACT, NAME, NotUnderstoodError, ProfileOrder, answered, encode_query, ordered

ASK_SECONDS = 5.0
"""Kineto's own: the agent plans by it."""
MAX_BYTES = 1 << 14
_CREDENTIALS = struct.Struct("iII")


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether the probe asks: not where kineto does itself, nor where it was told not to."""
    return "KINETO_USE_DAEMON" not in environ and environ.get("TACHOSCOPE_PROFILES") != "0"


class ProfileClient:
    """Asks every 5 s. Called by one thread; no method waits or raises.

    Args:
        directory: of the sockets, None: the abstract ones of this network namespace. clock: monotonic seconds.
    """

    def __init__(self, directory: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._daemon: str | bytes = f"{directory}/{NAME}" if directory else ABSTRACT
        self._own: Path | None = None
        self._socket: socket.socket | None = None
        self._ask_at = 0.0

    def poll(self, *, idle: bool) -> ProfileOrder | None:
        """Send a query if one is due, and return the order of the last answer."""
        try:
            order = self._answer()
            if self._clock() >= self._ask_at:
                self._ask_at = self._clock() + ASK_SECONDS
                if self._socket is None:
                    self._socket = self._made()
                self._socket.sendto(encode_query(os.getpid(), idle=idle), socket.MSG_DONTWAIT, self._daemon)
        except OSError:  # no agent runs here, or it does not read
            return None
        return order

    def _made(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            made.setblocking(False)
            name = f"tachoscope-{os.getpid()}-{secrets.token_hex(4)}"
            if self._directory:
                path = Path(self._directory) / name
                made.bind(str(path))
                self._own = path
            else:
                made.bind(b"\0" + name.encode())
        except OSError:
            made.close()
            raise
        return made

    def _answer(self) -> ProfileOrder | None:
        if self._socket is None:
            return None
        try:
            datagram, ancillary, flags, _ = self._socket.recvmsg(MAX_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return None
        if flags & socket.MSG_TRUNC or not _is_believed(ancillary):
            return None
        try:
            text = answered(datagram)
            return _safe(ordered(text)) if text else None
        except NotUnderstoodError:
            return None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._own is not None:
            with contextlib.suppress(OSError):
                self._own.unlink()
            self._own = None


def _is_believed(ancillary: list[tuple[int, int, bytes]]) -> bool:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            return _CREDENTIALS.unpack_from(data)[1] in {0, os.geteuid()}
    return False


def _safe(order: ProfileOrder) -> ProfileOrder | None:
    """Return the order if its file is in a folder of this user alone."""
    found = os.lstat(os.path.dirname(order.file))
    alone = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return order if alone else None
