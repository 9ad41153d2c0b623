"""Requests in the store, and processes that ask: what is taken, what is not, and what a process is told then."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_kineto import Client, asking, client, settings, short_folder, text_of
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage.profile_requests import EXPIRY_SECONDS, Request, new_request
from tachoscope_core.storage.store import Store
from tachoscope_node.config.settings import Profiles
from tachoscope_node.profiling.automatic import Automatic, Measured
from tachoscope_node.profiling.clients import KnownProcess
from tachoscope_node.profiling.endpoint import Sender
from tachoscope_node.profiling.profiler import Profiler
from tachoscope_service.common.log import Log

NOW = 1_800_000_000.0


class Node:
    """A profiler on a clock of its own; this process is rank 0 of 1 of the job resnet, and steps in 0.1 s."""

    def __init__(self, tmp_path: Path, sockets: Path, *, automatic: Automatic | None = None) -> None:
        self.now = NOW
        self.store = Store(str(tmp_path / "store"))
        self.sockets = sockets
        self.profiler = Profiler(
            Profiles(sockets=[str(sockets)], directory=str(tmp_path / "traces")),
            self.store,
            node="node-1",
            proc=Path("/proc"),
            state=tmp_path / "state",
            log=Log(logging.getLogger("test")),
            known=lambda: {os.getpid(): KnownProcess(os.geteuid(), "resnet", 0, 1, 0.1)},
            automatic=automatic,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )
        self.profiler.step()

    def ask(self, *, job: str = "resnet", ago: float = 0.0) -> Request:
        made = new_request(job, 5, now=self.now - ago, asked_by="somebody")
        profile_requests.write_request(self.store, made)
        return made

    def pass_second(self) -> None:
        self.now += 1.0
        self.profiler.step()

    def told(self, asks: Client, *, takes: int = 3) -> dict[str, str]:
        asks.send(asking(os.getpid(), takes=takes))
        return settings(text_of(asks.receive()))


@pytest.fixture
def sockets() -> Iterator[Path]:
    with short_folder() as folder:
        yield Path(folder)


@pytest.fixture
def node(tmp_path: Path, sockets: Path) -> Iterator[Node]:
    made = Node(tmp_path, sockets)
    yield made
    made.profiler.close()


def test_a_process_is_told_when_to_record_once_somebody_asked(node: Node, sockets: Path) -> None:
    with client(sockets) as asks:
        assert node.told(asks) == {}
        request = node.ask()
        node.pass_second()
        assert node.told(asks, takes=1) == {}, "it still records something else"
        told = node.told(asks)

    assert told["REQUEST_TRACE_ID"] == request.id
    assert int(told["PROFILE_START_TIME"]) / 1e3 >= NOW + 15
    assert float(told["ACTIVITIES_DURATION_MSECS"]) >= 5 * 100, "five steps of the 0.1 s that the probe tells"


def test_old_requests_and_those_for_other_jobs_are_nobodys(node: Node, sockets: Path) -> None:
    with client(sockets) as asks:
        node.told(asks)
        node.ask(ago=EXPIRY_SECONDS + 2)
        other = node.ask(job="other")
        node.pass_second()

        assert node.told(asks) == {}
    assert profile_requests.read_plan(node.store, "other", other.id) is None
    assert node.profiler.page()["recording"] == []


def test_a_second_request_waits_for_the_first_and_is_refused_then(node: Node, sockets: Path) -> None:
    with client(sockets) as asks:
        node.told(asks)
        first = node.ask()
        node.pass_second()
        second = node.ask()
        for _ in range(20):  # nobody asks in time, so the first fails
            node.pass_second()
            node.profiler.clients.identify(Sender(os.getpid(), os.geteuid()))

    assert profile_requests.read_answers(node.store, "resnet", first.id).ranks[0].state == "failed"
    plan = profile_requests.read_plan(node.store, "resnet", second.id)
    assert plan is not None
    assert first.id in plan.refused


def test_a_job_that_became_slower_is_profiled_though_nobody_asked(tmp_path: Path, sockets: Path) -> None:
    automatic = Automatic(lambda: {"resnet": Measured(recent=(0.2,) * 32, usual=0.1)})
    node = Node(tmp_path, sockets, automatic=automatic)
    try:
        with client(sockets) as asks:
            node.told(asks)
            for _ in range(3):
                node.pass_second()

            (request_id,) = profile_requests.ids(node.store, "resnet", since=NOW - 60)
            request = profile_requests.read_request(node.store, "resnet", request_id)
            assert request is not None
            assert (request.asked_by, request.steps) == ("agent node-1", 10)
            assert "2.00 times the usual" in request.reason
            assert node.told(asks)["REQUEST_TRACE_ID"] == request_id
    finally:
        node.profiler.close()


def test_who_can_be_profiled_is_on_the_page(node: Node, sockets: Path) -> None:
    with client(sockets) as asks:
        node.told(asks)

    page = node.profiler.page()
    assert page["ranks"] == [{"training_job": "resnet", "rank": 0, "world_size": 1, "pid": os.getpid()}]
    assert str(sockets) in page["sockets"]  # type: ignore[operator]
