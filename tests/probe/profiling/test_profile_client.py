"""What the probe asks its node's agent, whom it believes, and where it would write: over real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tachoscope.profiling.kineto_client import ProfileClient, is_enabled
from tachoscope_core.net import kineto_protocol as kineto_wire
from tachoscope_core.net.kineto_protocol import ProfileOrder


class Agent:
    """The socket of an agent that answers each question with one text."""

    def __init__(self, folder: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / kineto_wire.NAME))
        self.socket.setblocking(False)

    def answer(self, text: str) -> kineto_wire.ProfileQuery:
        """Answer the question that waits."""
        datagram, sender = self.socket.recvfrom(1000)
        asked = kineto_wire.parse(datagram)
        self.socket.sendto(kineto_wire.answer(asked, text), sender)
        return asked


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tk") as made:  # short enough for a socket
        yield Path(made)


def text(file: Path) -> str:
    return kineto_wire.configuration(start=time.time() + 15, seconds=2.0, file=str(file), trace_id="one")


def test_it_asks_every_5_seconds_and_takes_what_was_answered(folder: Path) -> None:
    agent, clock = Agent(folder), Clock()
    client = ProfileClient(str(folder), clock)
    assert client.poll(idle=True) is None
    assert agent.answer("") == kineto_wire.ProfileQuery("req", os.getpid(), idle=True)
    clock.now += 4.9
    assert client.poll(idle=True) is None
    with pytest.raises(BlockingIOError):
        agent.answer("")
    clock.now += 0.1
    assert client.poll(idle=True) is None
    agent.answer(text(folder / "trace.json"))

    order = client.poll(idle=False)

    assert order is not None
    assert (order.seconds, order.file) == (2.0, str(folder / "trace.json"))
    client.close()
    assert [path.name for path in folder.iterdir()] == [kineto_wire.NAME], "its own socket is gone"


def test_without_an_agent_nothing_happens(folder: Path) -> None:
    clock = Clock()
    client = ProfileClient(str(folder / "none"), clock)
    for _ in range(23):
        assert client.poll(idle=True) is None
        clock.now += 5.0
    client.close()


@pytest.mark.parametrize("fault", ["of others", "a link", "missing", "written by all"])
def test_a_folder_that_is_not_this_users_alone_is_not_written_to(folder: Path, fault: str) -> None:
    agent, client, target = Agent(folder), ProfileClient(str(folder)), folder / "target"
    if fault == "of others":
        target = Path("/etc") if os.geteuid() else target
        if not os.geteuid():
            target.mkdir()
            os.chown(target, 12345, -1)
    elif fault == "a link":
        (folder / "real").mkdir(0o700)
        target.symlink_to(folder / "real")
    elif fault == "written by all":
        target.mkdir()
        target.chmod(0o777)
    client.poll(idle=True)
    agent.answer(text(target / "trace.json"))

    assert client.poll(idle=True) is None
    client.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_users_process_that_has_taken_the_name_orders_nothing(folder: Path) -> None:
    folder.chmod(0o777)
    os.chown(folder, 12345, -1)
    usurper = (
        "import os, sys; sys.path[:0] = sys.argv[3:]\n"
        "from pathlib import Path; from test_profile_client import Agent; os.setuid(12345)\n"
        "agent = Agent(Path(sys.argv[1])); print(flush=True); agent.socket.setblocking(True)\n"
        "os.chmod(Path(sys.argv[1]) / 'dynolog', 0o777); print(flush=True)\n"
        "sys.stdin.readline(); agent.answer(sys.argv[2]); print(flush=True); sys.stdin.read()\n"
    )
    command = [
        sys.executable,
        "-c",
        usurper,
        str(folder),
        text(folder / "own" / "trace.json"),
        str(Path(__file__).parent),
        *sys.path,
    ]
    (folder / "own").mkdir(0o700)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert [other.stdout.readline(), other.stdout.readline()] == [b"\n", b"\n"]
        client = ProfileClient(str(folder))
        client.poll(idle=True)
        next(folder.glob("tachoscope-*")).chmod(0o777)  # an abstract socket has no such hindrance
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert other.stdout.readline() == b"\n"

        assert client.poll(idle=True) is None
        client.close()
        other.stdin.close()


def test_an_answer_of_another_protocol_orders_nothing(folder: Path) -> None:
    agent, client = Agent(folder), ProfileClient(str(folder))
    client.poll(idle=True)
    datagram, sender = agent.socket.recvfrom(1000)
    for wrong in (b"", b"x" * 1000, datagram):
        agent.socket.sendto(wrong, sender)
        assert client.poll(idle=True) is None
    client.close()


def test_where_kineto_asks_itself_the_probe_does_not() -> None:
    assert is_enabled({})
    assert not is_enabled({"KINETO_USE_DAEMON": "1"})
    assert not is_enabled({"TACHOSCOPE_PROFILES": "0"})
    assert ProfileOrder(1.0, 2.0, "/a").seconds == 2.0
