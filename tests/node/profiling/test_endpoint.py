"""The socket, with real ones on its other side: who asks is answered, and nobody can make it do anything else."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_kineto import asking, client, context, short_folder, text_of
from processes import wait_for
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.kineto_protocol import ProfileQuery
from tachoscope_node.profiling.endpoint import Endpoint, Sender


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_folder() as folder:
        yield Path(folder) / "sockets"


@pytest.fixture
def heard() -> list[tuple[ProfileQuery, Sender]]:
    return []


@pytest.fixture
def endpoint(directory: Path, heard: list[tuple[ProfileQuery, Sender]]) -> Iterator[Endpoint]:
    def decide(asked: ProfileQuery, sender: Sender) -> str:
        heard.append((asked, sender))
        if asked.pid == 666:
            raise RuntimeError("a fault of our own")
        return "A=1\n"

    made = Endpoint(directory, decide)
    yield made
    made.close()


def test_who_asks_is_answered_and_known_by_the_kernels_word(
    directory: Path, endpoint: Endpoint, heard: list[tuple[ProfileQuery, Sender]]
) -> None:
    with client(directory) as asks:
        asks.send(asking(12345, takes=3))

        assert text_of(asks.receive()) == "A=1\n"
        assert heard == [(ProfileQuery("req", 12345, idle=True), Sender(os.getpid(), os.geteuid()))]
        asks.send(context(1))
        assert len(asks.receive()) == 44
    assert not endpoint.refused


def test_garbage_is_counted_and_others_are_answered_all_the_same(directory: Path, endpoint: Endpoint) -> None:
    with client(directory) as asks:
        for garbage in (b"", b"x", os.urandom(40), os.urandom(8192), os.urandom(20_000)):
            asks.send(garbage)
        asks.send(asking(1))

        assert text_of(asks.receive()) == "A=1\n"
    assert endpoint.refused["not understood"] == 4
    assert endpoint.refused["too long"] == 1


def test_a_fault_of_its_own_does_not_end_it(directory: Path, endpoint: Endpoint) -> None:
    with client(directory) as asks:
        asks.send(asking(666))
        asks.send(asking(1))

        assert text_of(asks.receive()) == "A=1\n"
    assert endpoint.refused["fault: RuntimeError: a fault of our own"] == 1


def test_a_process_that_takes_no_answer_holds_nobody_up_for_long(directory: Path, endpoint: Endpoint) -> None:
    with client(directory) as silent, client(directory, "dynoconfigclient-2") as asks:
        asks.socket.settimeout(5)  # what asked the daemon's socket of before has no answer
        silent.socket.connect(silent.daemon)  # then its queue has no end but the room that the daemon has for all
        with contextlib.suppress(ConnectionError):  # the daemon's socket is another one now
            for _ in range(600):
                silent.socket.send(asking(1))

        def answered() -> str:
            asks.send(asking(2))
            return str(text_of(asks.receive()))

        assert wait_for(answered) == "A=1\n"
        assert endpoint.refused["gone"]


def test_only_a_socket_in_its_directory_is_answered(directory: Path, endpoint: Endpoint, tmp_path: Path) -> None:
    with short_folder() as elsewhere, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outside:
        outside.bind(f"{elsewhere}/other")
        outside.settimeout(0.5)
        outside.sendto(asking(1), str(directory / "dynolog"))

        wait_for(lambda: endpoint.refused["gone"])
        with pytest.raises(TimeoutError):
            outside.recv(4096)


def test_a_process_without_an_address_is_not_answered(directory: Path, endpoint: Endpoint) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unnamed:
        unnamed.connect(str(directory / "dynolog"))
        unnamed.send(asking(1))

    wait_for(lambda: endpoint.refused["no process to answer"])


def test_every_user_may_ask_and_none_may_remove_the_socket(directory: Path, endpoint: Endpoint) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o1777
    assert stat.S_IMODE((directory / "dynolog").stat().st_mode) == 0o666


def test_a_second_daemon_is_refused_and_what_a_dead_one_left_is_replaced(directory: Path, endpoint: Endpoint) -> None:
    with pytest.raises(TachoscopeError, match="another daemon has the socket"):
        Endpoint(directory, lambda *_: "")
    endpoint.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(directory / "dynolog"))

    made = Endpoint(directory, lambda *_: "B=2\n")
    with client(directory) as asks:
        asks.send(asking(1))
        assert text_of(asks.receive()) == "B=2\n"
    made.close()
    assert not (directory / "dynolog").exists()
