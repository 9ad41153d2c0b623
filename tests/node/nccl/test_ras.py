"""The collector beside a fake RAS that speaks its protocol."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from trees import points

from fake_ras import FakeRas, communicator, fake_ras
from processes import free_port, wait_for
from spooling import FakeClock
from tachoscope_core.metrics.nccl import COMMUNICATORS, MISSING_RANKS, RAS_UP
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError, PartialError
from tachoscope_node.nccl.ras import RasCollector
from tachoscope_node.nccl.ras_client import MOST_BYTES, WHOLE_SECONDS


class Asking:
    """A collector whose clock goes on by a poll when it is told to."""

    def __init__(self, address: tuple[str, int], *, hung_polls: int = 3) -> None:
        self.clock = FakeClock()
        self.log: list[str] = []
        self.waits_for = ""
        self.collector = RasCollector(
            address,
            hung_polls=hung_polls,
            poll_seconds=15.0,
            wait_for=lambda: self.waits_for,
            log=self.log.append,
            clock=self.clock,
        )

    def answer(self, server: FakeRas) -> dict[str, float]:
        """Ask once more, until the answer is there; return the communicators by state."""
        self.clock.now += 15.0
        asked = server.commands.count("STATUS")

        def answered() -> bool:
            self.states()
            return server.commands.count("STATUS") > asked and self.collector._question is None

        wait_for(answered)
        return self.states()

    def states(self) -> dict[str, float]:
        try:
            families = self.collector.collect()
        except NoDataError:
            return {}
        assert points(families, RAS_UP) == {(): 1.0}
        return {labels[0]: value for labels, value in points(families, COMMUNICATORS).items() if value}


@pytest.fixture
def server() -> Iterator[FakeRas]:
    with fake_ras() as found:
        yield found


@pytest.fixture
def asking(server: FakeRas) -> Iterator[Asking]:
    found = Asking(server.address)
    yield found
    found.collector.close()


def raises(kind: type[Exception], asking: Asking) -> Callable[[], str]:
    def tried() -> str:
        try:
            asking.collector.collect()
        except kind as error:
            return str(error)
        except NoDataError:
            pass
        return ""

    return tried


def test_it_asks_in_the_words_of_the_protocol_and_only_when_due(server: FakeRas, asking: Asking) -> None:
    server.communicators = [communicator(7, 7), communicator(3, 3, name="0x2")]

    assert asking.answer(server) == {"running": 2.0}
    for _ in range(5):
        asking.collector.collect()
    assert server.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "STATUS"]
    assert asking.log == []


def test_ranks_that_disagree_and_move_do_not_hang_and_those_that_stand_still_do(server: FakeRas, asking: Asking) -> None:
    for count in range(6):
        server.communicators = [communicator(100 + count, 100 + count, 99 + count)]
        assert asking.answer(server) == {"disagreeing": 1.0}
    states = [asking.answer(server) for _ in range(3)]

    assert states == [{"disagreeing": 1.0}, {"disagreeing": 1.0}, {"hung": 1.0}]
    assert len(asking.log) == 1
    assert "rank 2 (process 1002 on 172.16.64.245) launched 104 AllReduce where others launched 105" in asking.log[0]
    asking.answer(server)
    assert len(asking.log) == 1, "what goes on is not told again"
    server.communicators = [communicator(106, 106, 106)]
    assert asking.answer(server) == {"running": 1.0}
    assert "no longer hung, running" in asking.log[1]


def test_ranks_that_agree_and_stand_still_are_not_said_to_hang(server: FakeRas, asking: Asking) -> None:
    server.communicators = [communicator(5, 5, 5)]

    assert [asking.answer(server) for _ in range(6)] == [{"running": 1.0}] * 6


def test_missing_ranks_are_counted_by_condition_and_named(server: FakeRas, asking: Asking) -> None:
    dead = {"unresponsive": True, "considered_dead": True}
    silent = {"unresponsive": True, "considered_dead": False}
    server.communicators = [communicator(5, 5, missing={2: silent, 3: dead})]

    assert asking.answer(server) == {"incomplete": 1.0}
    missing = points(asking.collector.collect(), MISSING_RANKS)
    assert missing == {("unresponsive",): 1, ("dead",): 1, ("not_a_member",): 0}
    assert "rank 2 (process 1002" in asking.log[0]
    assert "rank 3 (process 1003" in asking.log[0]


def test_another_jobs_process_that_answers_at_the_same_port_does_not_break_the_series(server: FakeRas, asking: Asking) -> None:
    one, other = communicator(5, 4), communicator(9, 9, name="0x2")
    for answers in range(6):
        server.communicators = [one] if answers % 2 == 0 else [other]
        states = asking.answer(server)
    server.communicators = [one]
    assert states == {"disagreeing": 1.0, "running": 1.0}
    assert asking.answer(server) == {"hung": 1.0, "running": 1.0}
    for _ in range(5):
        states = asking.answer(server)

    assert states == {"hung": 1.0}, "who is not told of any more is forgotten"


def test_a_server_that_knows_no_json_is_never_asked_for_the_status(server: FakeRas, asking: Asking) -> None:
    server.json = False
    with pytest.raises(NotSupportedError, match="NCCL before 2.28.7"):
        wait_for(raises(ZeroDivisionError, asking))

    assert "STATUS" not in server.commands


@pytest.mark.parametrize("version", ["2.27.7", "2.9.1", "1.99", "new"])
def test_a_server_of_an_unsafe_version_is_not_supported(server: FakeRas, asking: Asking, version: str) -> None:
    server.version = version
    with pytest.raises(NotSupportedError, match="not safe to query"):
        wait_for(raises(ZeroDivisionError, asking))


@pytest.mark.parametrize("raw", [b"", b"{", b'{"nccl_version": "2.29.1"}', b"x" * (MOST_BYTES + 1)])
def test_garbage_for_an_answer_is_a_failure_and_no_all_clear(server: FakeRas, asking: Asking, raw: bytes) -> None:
    server.raw = raw

    assert wait_for(raises(PartialError, asking))
    with pytest.raises(PartialError) as failed:
        asking.collector.collect()
    assert points(list(failed.value.families), RAS_UP) == {(): 0.0}


def test_a_server_that_does_not_answer_is_given_up_and_never_waited_for(server: FakeRas, asking: Asking) -> None:
    server.pause = 60.0
    wait_for(lambda: "STATUS" in server.commands or asking.states())
    assert asking.states() == {}
    asking.clock.now += WHOLE_SECONDS + 1
    with pytest.raises(PartialError, match="no whole answer within 20 s"):
        asking.collector.collect()
    assert server.most_open == 1


def test_while_a_job_starts_nothing_is_asked_and_nothing_shown(server: FakeRas, asking: Asking) -> None:
    server.communicators = [communicator(5, 5)]
    asking.waits_for = "a rank has not finished its first step"
    with pytest.raises(NoDataError, match="first step"):
        asking.collector.collect()

    assert server.commands == []


def test_nobody_at_the_port_is_no_failure(asking: Asking) -> None:
    gone = Asking(("127.0.0.1", free_port()))
    with pytest.raises(NoDataError, match="no answer at"):
        wait_for(gone.collector.collect)


def test_what_is_no_ras_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        asking = Asking(other.getsockname())
        wait_for(lambda: asking.states() == {})
        client, _ = other.accept()
        with client:
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n\r\n")
            assert "not an NCCL RAS server" in wait_for(raises(PartialError, asking))
        asking.collector.close()
