"""The socket at which processes ask whether they shall record: abstract, or in a directory that a pod shares.

Any process of the machine may send here, so nothing that it says is believed but what the kernel says of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.kineto_protocol import ABSTRACT, MAX_BYTES, NAME, NotUnderstoodError, ProfileQuery, answer, parse

MOST_PER_SECOND = 1000
"""Datagrams that are answered; the rest waits in the kernel, and then with who sends."""
_CREDENTIALS = struct.Struct("iII")
_LOOK_SECONDS = 0.5
_RENEW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a datagram, by the kernel's word; `pid` 0: a process that this one cannot see."""

    pid: int
    uid: int


class Endpoint:
    """Answers in a thread of its own, and waits for nobody: an answer that cannot be taken at once is lost.

    Args:
        directory: that the socket lies in; None: the abstract one of this network namespace.
        decide: returns the text for a process that asks; called from the endpoint's thread.

    Attributes:
        refused: datagrams that were not answered, by reason.

    Raises:
        TachoscopeError: the socket cannot be made, or another daemon has it.
    """

    def __init__(self, directory: Path | None, decide: Callable[[ProfileQuery, Sender], str]) -> None:
        self.directory = directory
        self.refused: Counter[str] = Counter()
        self._decide = decide
        self._socket = _bound(directory)
        self._renewed = self._second = 0.0
        self._answered = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="tachoscope-profiles-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread that answers, and remove the socket."""
        self._stop.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # it waits no longer
        self._thread.join()
        self._socket.close()
        if self.directory is not None:
            (self.directory / NAME).unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                if self._socket.fileno() < 0:  # it could not be made again
                    self._socket = _bound(self.directory)
                self._receive()
            except (OSError, TachoscopeError) as error:
                self.refused[f"socket: {error}"[:200]] += 1
                self._stop.wait(_LOOK_SECONDS)

    def _receive(self) -> None:
        poll = select.poll()  # select() knows small descriptors only
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(_LOOK_SECONDS * 1e3):
            return
        datagram, ancillary, flags, sender = self._socket.recvmsg(MAX_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._answered = now, 0
        self._answered += 1
        if self._answered > MOST_PER_SECOND:
            self._stop.wait(max(1.0 - (now - self._second), 0.0))
        self._answer(datagram, ancillary, flags, sender)

    def _answer(self, datagram: bytes, ancillary: list[tuple[int, int, bytes]], flags: int, address: object) -> None:
        sender = _sender(ancillary)
        if sender is None or flags & socket.MSG_TRUNC or not address:
            self.refused["no process to answer" if sender is None or not address else "too long"] += 1
            return
        try:
            asked = parse(datagram)
        except NotUnderstoodError:
            self.refused["not understood"] += 1
            return
        try:
            text = self._decide(asked, sender)
            # From this socket only: kineto ends its process, the training, when an answer comes from one without a name.
            self._socket.sendto(answer(asked, text), self._reachable(address, sender))
        except BlockingIOError:
            self.refused["gone"] += 1
            self._renew()
        except OSError:
            self.refused["gone"] += 1
        except Exception as error:  # a fault of our own must not end the thread
            self.refused[f"fault: {type(error).__name__}: {error}"[:200]] += 1

    def _renew(self) -> None:
        """Begin with a new socket where the old one can send to nobody: what a process leaves unread counts against the sender."""
        now = time.monotonic()
        if self._renewed + _RENEW_SECONDS > now:
            return
        self._renewed = now
        self._socket.close()
        if self.directory is not None:
            (self.directory / NAME).unlink(missing_ok=True)
        self._socket = _bound(self.directory)

    def _reachable(self, address: object, sender: Sender) -> bytes:
        """Return where to answer: of a socket in a directory its name there, for the sender may see the directory elsewhere.

        Raises:
            FileNotFoundError: it is not a socket of the sender's in that directory.
        """
        given = address if isinstance(address, bytes) else os.fsencode(str(address))
        if given.startswith(b"\0"):
            return given
        path = os.fsencode(self.directory or "") + b"/" + given.rpartition(b"/")[2]
        found = os.lstat(path)
        if self.directory is None or not stat.S_ISSOCK(found.st_mode) or found.st_uid != sender.uid:
            raise FileNotFoundError
        return path


def _sender(ancillary: list[tuple[int, int, bytes]]) -> Sender | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack_from(data)
            return Sender(pid, uid)
    return None


def _bound(directory: Path | None) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        if directory is None:
            made.bind(ABSTRACT)
        else:
            _bind_in(made, directory)
        made.setblocking(False)
    except OSError as error:
        made.close()
        where = "the abstract socket 'dynolog'" if directory is None else f"the socket {directory / NAME}"
        if error.errno == errno.EADDRINUSE:
            raise TachoscopeError(f"another daemon has {where}", fix="stop it (dynolog, another agent), or profiles: ...") from None
        raise TachoscopeError(f"could not make {where}: {error.strerror}") from None
    return made


def _bind_in(made: socket.socket, directory: Path) -> None:
    """Bind in a directory where every user's processes may put theirs, and none can remove another's."""
    if not directory.is_dir():
        directory.mkdir(parents=True)
        directory.chmod(0o1777)
    path = directory / NAME
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _is_alive(path):
            path.unlink()
    made.bind(str(path))
    path.chmod(0o666)


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True
