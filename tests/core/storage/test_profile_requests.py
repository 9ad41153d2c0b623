"""Requests for profiles in the store: what was written is read, in order, and what is broken is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage.profile_requests import HostState, Pass, Plan, RankState, new_request
from tachoscope_core.storage.store import Store
from tachoscope_core.storage.traces import traces

NOW = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def test_a_request_is_read_as_it_was_made(store: Store) -> None:
    made = new_request("resnet", 5, now=NOW, asked_by="somebody", reason="it is slow")
    profile_requests.write_request(store, made)

    assert profile_requests.ids(store, "resnet", since=NOW - 60) == [made.id]
    assert profile_requests.read_request(store, "resnet", made.id) == made
    assert profile_requests.read_request(store, "resnet", "another") is None
    assert profile_requests.read_plan(store, "resnet", made.id) is None


def test_requests_come_in_order_of_time_and_old_ones_do_not(store: Store) -> None:
    made = [new_request("resnet", 5, now=NOW + seconds, asked_by="somebody") for seconds in (300, 0, 200, 100)]
    for request in made:
        profile_requests.write_request(store, request)

    assert profile_requests.ids(store, "resnet", since=NOW + 100) == [made[3].id, made[2].id, made[0].id]
    assert profile_requests.ids(store, "other", since=0.0) == []
    assert len({new_request("resnet", 5, now=NOW, asked_by="x").id for _ in range(20)}) > 15, "two at one time differ"


def test_what_agents_said_is_joined_over_their_nodes(store: Store) -> None:
    made = new_request("resnet", 5, now=NOW, asked_by="somebody")
    profile_requests.write_request(store, made)
    plan = Plan(passes=(Pass(NOW + 16, 2.0),))
    profile_requests.write_plan(store, made, plan)
    for rank, host in ((1, "node/../1"), (0, "node-0")):
        ranks = (RankState(rank=rank, world_size=2, state="waiting"),)
        profile_requests.write_host(store, made, HostState(host=host, updated=NOW, ranks=ranks))

    answers = profile_requests.read_answers(store, "resnet", made.id)
    assert answers.plan == plan
    assert [rank.rank for rank in answers.ranks] == [0, 1]


def test_a_job_with_nothing_but_requests_is_no_job_that_was_recorded(store: Store) -> None:
    profile_requests.write_request(store, new_request("resnet", 5, now=NOW, asked_by="somebody"))

    assert store.job_times() == {}
    assert traces(store, "resnet") == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": "resnet"}', '{"job": 1}'])
def test_a_broken_document_is_named(store: Store, text: str) -> None:
    made = new_request("resnet", 5, now=NOW, asked_by="somebody")
    profile_requests.write_request(store, made)
    path = Path(store.root) / "jobs" / "resnet" / "requests" / made.id / "request.json"
    path.write_text(text)

    with pytest.raises(TachoscopeError, match=r"request\.json in store .* is not a request"):
        profile_requests.read_request(store, "resnet", made.id)


def test_a_request_that_says_it_is_another_is_not_believed(store: Store) -> None:
    made = new_request("resnet", 5, now=NOW, asked_by="somebody")
    profile_requests.write_request(store, made)
    folder = Path(store.root) / "jobs" / "resnet" / "requests"
    (folder / made.id).rename(folder / f"{made.id}-x")

    with pytest.raises(TachoscopeError, match="has the id of another one"):
        profile_requests.read_request(store, "resnet", f"{made.id}-x")


def test_names_that_lead_elsewhere_are_refused(store: Store) -> None:
    with pytest.raises(TachoscopeError, match="not usable"):
        new_request("../../etc", 5, now=NOW, asked_by="somebody")
    with pytest.raises(TachoscopeError, match="not usable"):
        profile_requests.read_plan(store, "resnet", "../x")
