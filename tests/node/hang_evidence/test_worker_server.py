"""What is asked of PyTorch's worker server, and which answers are not taken. test_hang_evidence.py asks a real one."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.hang_evidence.job_files import JobRoot
from tachoscope_node.hang_evidence.worker_server import recorded

REQUEST = b"POST /handler/fr_trace_json HTTP/1.0\r\n"


@contextmanager
def served(path: Path, *parts: bytes, closes: bool = True) -> Iterator[list[bytes]]:
    """Answer one request at a socket with these parts; yield what was asked."""
    asked: list[bytes] = []
    over = threading.Event()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            asked.append(connection.recv(4096))
            for part in parts:
                connection.sendall(part)
            if not closes:
                over.wait(60)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        with socket.socket(socket.AF_UNIX) as last:  # of a test that asked nothing
            last.connect(str(path))
            last.shutdown(socket.SHUT_WR)
            thread.join()
        listener.close()


def ask(path: Path, *, pid: int | None = None, uid: int | None = None, most: int = 1000, seconds: float = 30.0) -> bytes:
    root = JobRoot(os.getpid())
    try:
        return recorded(root, str(path), os.geteuid() if uid is None else uid, os.getpid() if pid is None else pid, most, seconds)
    finally:
        root.close()


def answer(body: bytes, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, size, body)


def test_the_recorder_of_the_ranks_own_server_is_taken_whole(tmp_path: Path) -> None:
    whole = answer(b'{"entries": []}')
    with served(tmp_path / "w", whole[:7], whole[7:40], whole[40:]) as asked:
        assert ask(tmp_path / "w") == b'{"entries": []}'

    assert asked[0].startswith(REQUEST)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "not one of a PyTorch worker server"),
        (answer(b"Handler not found", b"404 Not Found"), "answers 404: Handler not found"),
        (answer(b"{}", length=40), "cut off"),
        (answer(b"x" * 40_000), "longer than"),
        (b"", "not one of a PyTorch worker server"),
    ],
)
def test_an_answer_that_is_not_whole_or_not_the_recorders_is_not_taken(tmp_path: Path, said: bytes, why: str) -> None:
    with served(tmp_path / "w", said), pytest.raises(TachoscopeError, match=why):
        ask(tmp_path / "w")


def test_a_server_that_says_no_more_is_given_up(tmp_path: Path) -> None:
    with served(tmp_path / "w", b"HTTP/1.1 200 OK\r\n", closes=False), pytest.raises(TachoscopeError, match="in time"):
        ask(tmp_path / "w", seconds=0.5)


def test_nothing_is_sent_to_another_process_another_users_socket_or_another_kind_of_file(tmp_path: Path) -> None:
    with served(tmp_path / "w") as asked, pytest.raises(TachoscopeError, match=f"process {os.getpid()} answers"):
        ask(tmp_path / "w", pid=1)
    assert asked == [b""]
    (tmp_path / "file").touch()
    for path, uid in ((tmp_path / "file", None), (tmp_path / "w", os.geteuid() + 1)):
        with pytest.raises(TachoscopeError, match="is not a socket of the job's user"):
            ask(path, uid=uid)
    with pytest.raises(ConnectionRefusedError):
        ask(tmp_path / "w")
