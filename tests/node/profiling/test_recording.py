"""One profile from the request to the store, on a clock of its own, with fake processes that write what they are told to."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from fake_kineto import settings, write_trace
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.profile_requests import Request, new_request, read_answers
from tachoscope_core.storage.store import Store
from tachoscope_node.profiling.clients import ClientProcess, began
from tachoscope_node.profiling.limits import refusal
from tachoscope_node.profiling.parts import RecordingPlace
from tachoscope_node.profiling.recording import COLLECT_SECONDS, PLAN_SECONDS, Recording

START = 1_800_000_000.0
PROC = Path("/proc")


def who(rank: int, world_size: int = 2) -> ClientProcess:
    pid = os.getpid()
    return ClientProcess(pid, os.geteuid(), os.getppid(), began(PROC, pid) or 0, "resnet", rank, world_size, True)


class Node:
    """A node with ranks that step so often."""

    def __init__(
        self, tmp_path: Path, request: Request, ranks: list[int], *, name: str = "node-1", step_seconds: float = 0.1
    ) -> None:
        self.place = RecordingPlace(
            store=Store(str(tmp_path / "store")), node=name, proc=PROC, directory=tmp_path / name, own=tmp_path / f"{name}-own",
            lead_seconds=16.0, most_seconds=60.0, trace_bytes=1 << 24,
        )  # fmt: skip
        self.who = {rank: who(rank) for rank in ranks}
        self.recording = Recording(request, self.who, self.place, now=START)
        self.step_seconds = step_seconds
        self.told: dict[int, list[dict[str, str]]] = {rank: [] for rank in ranks}
        self.silent: set[int] = set()
        self._due: list[tuple[float, int, dict[str, str]]] = []

    def second(self, now: float) -> None:
        for rank in self.who.keys() - self.silent:
            if text := self.recording.order(self.who[rank], now):
                told = settings(text)
                self.told[rank].append(told)
                end = int(told["PROFILE_START_TIME"]) / 1e3 + int(told["ACTIVITIES_DURATION_MSECS"]) / 1e3
                self._due.append((end, rank, told))
        for due in [due for due in self._due if due[0] <= now]:
            self._due.remove(due)
            write_trace(due[2], 1000 + due[1], self.step_seconds)
        self.recording.step(now)
        if self.recording._keeper is not None:
            self.recording._keeper.join()


def pass_time(*nodes: Node, seconds: int = 400) -> None:
    for second in range(seconds):
        for node in nodes:
            if not node.recording.finished:
                node.second(START + second)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    made = new_request("resnet", 10, now=START, asked_by="somebody")
    profile_requests.write_request(Store(str(tmp_path / "store")), made)
    return made


def test_all_ranks_are_told_one_time_that_is_at_least_15_s_ahead(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [0, 1])
    node.recording.begin(0.1, START)
    pass_time(node)

    (first,), (second,) = node.told.values()
    assert first["PROFILE_START_TIME"] == second["PROFILE_START_TIME"]
    assert int(first["PROFILE_START_TIME"]) >= (START + 15) * 1e3
    assert first["ACTIVITIES_LOG_FILE"] != second["ACTIVITIES_LOG_FILE"]


def test_the_traces_are_in_the_store_and_nothing_is_left(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [0, 1])
    node.recording.begin(0.1, START)
    pass_time(node)

    answers = read_answers(node.place.store, "resnet", request_.id)
    assert [(rank.rank, rank.state, rank.steps >= 10) for rank in answers.ranks] == [(0, "stored", True), (1, "stored", True)]
    found = stored_traces.traces(node.place.store, "resnet")
    assert [(one.recording, one.file) for one in found] == [(request_.id, rank.file) for rank in answers.ranks]
    assert node.recording.finished
    assert list(node.place.directory.iterdir()) == list(node.place.own.iterdir()) == []


@pytest.mark.parametrize(("step_seconds", "passes"), [(0.1, 1), (0.5, 2), (1.5, 2), (3.0, 2), (4.5, 2)])
def test_where_the_step_is_not_known_enough_passes_follow(
    tmp_path: Path, request_: Request, step_seconds: float, passes: int
) -> None:
    node = Node(tmp_path, request_, [0, 1], step_seconds=step_seconds)
    node.recording.begin(0.0, START)
    pass_time(node)

    answers = read_answers(node.place.store, "resnet", request_.id)
    assert answers.plan is not None
    assert len(answers.plan.passes) >= passes
    assert answers.plan.step_seconds == pytest.approx(step_seconds)
    most = 60.0 / step_seconds
    assert all(rank.steps >= min(10, most - 2) for rank in answers.ranks)


def test_a_process_that_does_not_ask_in_time_is_told_and_the_other_recorded(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [0, 1])
    node.silent = {1}
    node.recording.begin(0.1, START)
    pass_time(node)

    first, second = read_answers(node.place.store, "resnet", request_.id).ranks
    assert (first.state, second.state) == ("stored", "failed")
    assert second.reason == "its process did not request the recording in time"


def test_nobody_is_told_so_late_that_kineto_turns_it_down(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [0, 1])
    node.recording.begin(0.1, START)
    node.recording.step(START)

    assert node.recording.order(node.who[0], START + 16 - 6) == ""
    assert node.recording.order(node.who[0], START + 16 - 7) != ""
    assert node.recording.order(node.who[0], START + 16 - 7) == "", "it is told once"


def test_another_process_of_the_same_rank_is_told_nothing(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [0, 1])
    node.recording.begin(0.1, START)
    node.recording.step(START)

    assert node.recording.order(dataclasses.replace(node.who[0], pid=1), START) == ""


def test_a_process_that_died_is_not_waited_for(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [0])
    node.who[0] = node.recording.parts[0].who = dataclasses.replace(node.who[0], began=1)
    node._due = []
    node.recording.begin(0.1, START)
    node.recording.step(START)
    assert node.recording.order(node.who[0], START)
    node.recording.step(START + 20)

    (rank,) = read_answers(node.place.store, "resnet", request_.id).ranks
    assert (rank.state, rank.reason) == ("failed", "its process ended before it had written its trace")


def test_a_trace_that_never_comes_ends_in_a_reason(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [0])
    node.recording.begin(0.1, START)
    node.recording.step(START)
    assert node.recording.order(node.who[0], START)
    for after in (30, 30 + COLLECT_SECONDS, 31 + COLLECT_SECONDS):
        node.recording.step(START + after)

    (rank,) = read_answers(node.place.store, "resnet", request_.id).ranks
    assert rank.state == "failed"
    assert "can its process see that folder?" in rank.reason
    assert node.recording.finished


def test_two_nodes_follow_the_plan_of_the_one_with_rank_0(tmp_path: Path, request_: Request) -> None:
    first = Node(tmp_path, request_, [0], step_seconds=0.5)
    second = Node(tmp_path, request_, [1], name="node-2", step_seconds=0.5)
    first.recording.begin(0.0, START)
    pass_time(first, second)

    assert [told["PROFILE_START_TIME"] for told in first.told[0]] == [told["PROFILE_START_TIME"] for told in second.told[1]]
    assert len(first.told[0]) == 2
    assert [rank.state for rank in read_answers(first.place.store, "resnet", request_.id).ranks] == ["stored", "stored"]


def test_a_node_whose_leader_says_nothing_gives_up(tmp_path: Path, request_: Request) -> None:
    node = Node(tmp_path, request_, [1])
    for second in (0.0, PLAN_SECONDS + 1):
        node.recording.step(START + second)

    assert node.recording.finished
    assert [rank.reason for rank in read_answers(node.place.store, "resnet", request_.id).ranks] == [
        "the agent of rank 0 said nothing"
    ]


def test_a_refusal_is_in_the_store_and_ends_it_for_all(tmp_path: Path, request_: Request) -> None:
    first, second = Node(tmp_path, request_, [0]), Node(tmp_path, request_, [1], name="node-2")
    first.recording.refuse("not now")
    second.recording.step(START)

    assert first.recording.finished
    assert second.recording.finished
    plan = read_answers(first.place.store, "resnet", request_.id).plan
    assert plan is not None
    assert plan.refused == "not now"


def refused(store: Store, request: Request, now: float = START + 1, interval: float = 600.0, job_bytes: int = 1 << 30) -> str:
    return refusal(store, request, now=now, interval_seconds=interval, job_bytes=job_bytes)


def test_one_profile_in_ten_minutes_counted_from_those_that_recorded(tmp_path: Path, request_: Request) -> None:
    store = Store(str(tmp_path / "store"))
    assert refused(store, request_) == ""
    Node(tmp_path, request_, [0]).recording.begin(0.1, START)
    later = new_request("resnet", 10, now=START + 100, asked_by="somebody")

    assert f"profile {request_.id} of job resnet began 85 s ago" in refused(store, later, START + 101)
    assert "begins in 6 s" in refused(store, later, START + 10)
    assert refused(store, later, START + 617) == ""
    Node(tmp_path, later, [0]).recording.refuse("for a reason")
    assert "began 85 s ago" in refused(store, new_request("resnet", 10, now=START + 100, asked_by="x"), START + 101)


def test_a_job_whose_traces_fill_its_part_of_the_store_is_not_profiled(tmp_path: Path, request_: Request) -> None:
    store = Store(str(tmp_path / "store"))
    (tmp_path / "t.json").write_bytes(bytes(5000))
    stored_traces.write(store, "resnet", "first", tmp_path / "t.json")

    assert "that they may have" in refused(store, request_, job_bytes=5000)
    assert refused(store, request_, job_bytes=5001) == ""
