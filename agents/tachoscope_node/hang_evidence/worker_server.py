"""Asks PyTorch's worker server, which the debug server is made of, for the flight recorder of its rank; gloo's too.

A rank that runs `torch.distributed.elastic.control_plane.worker_main` serves HTTP at the Unix socket
`$TORCH_WORKER_SERVER_SOCKET`, on threads that need no lock of Python. Only a socket that the job names is asked: the debug server's
ranks listen at any port, which cannot be told from gloo's own listeners, and these a foreign request may break.
"""

from __future__ import annotations

import re
import socket
import struct
import time

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.hang_evidence.job_files import JobRoot

SOCKET_VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
_REQUEST = b"POST /handler/fr_trace_json HTTP/1.0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[^\r\n]*\r\n")
_MOST_HEAD = 16 << 10
_CREDENTIALS = struct.Struct("3i")
_BYTES_AT_ONCE = 1 << 16


def recorded(root: JobRoot, path: str, uid: int, pid: int, most_bytes: int, seconds: float) -> bytes:
    """Return the flight recorder's entries of a rank, as JSON.

    Args:
        uid: whose socket it must be. pid: of the process that must answer: ranks may name the same socket.

    Raises:
        TachoscopeError: it is another's socket, or gives no whole answer of that size in that time. OSError: none can be reached.
    """
    deadline = time.monotonic() + seconds
    with root.connected(path, uid, seconds) as connection:
        answers, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if answers != pid:
            raise TachoscopeError(f"process {answers or 'of another namespace'} answers at {SOCKET_VARIABLE}, not the rank's")
        connection.sendall(_REQUEST)
        return _body(_whole(connection, most_bytes + _MOST_HEAD, deadline))


def _whole(connection: socket.socket, most_bytes: int, deadline: float) -> bytes:
    got = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TachoscopeError("the worker server gave no whole answer in time")
        connection.settimeout(left)
        try:
            part = connection.recv(_BYTES_AT_ONCE)
        except TimeoutError:
            continue
        if not part:
            return bytes(got)
        got += part
        if len(got) > most_bytes:
            raise TachoscopeError(f"the worker server's answer is longer than {most_bytes >> 20} MiB")


def _body(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = _STATUS.match(head + b"\r\n")
    if status is None:
        raise TachoscopeError("the socket is not one of a PyTorch worker server")
    if status[1] != b"200":
        raise TachoscopeError(f"the worker server answers {status[1].decode()}: {body[:200].decode(errors='replace')}")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d{1,12})", head)
    if length is None or int(length[1]) != len(body):
        raise TachoscopeError("the worker server's answer is cut off")
    return body
