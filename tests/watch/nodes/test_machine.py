"""The state machine of nodes: what takes a node out, what does not, and what brings it back."""

from __future__ import annotations

import msgspec
import pytest

from node_world import DAY, HOUR, RULES, World
from tachoscope_watch.nodes.machine import advance
from tachoscope_watch.nodes.states import (
    Booted,
    CloseBreaker,
    Cordon,
    Event,
    Evidence,
    Fleet,
    Judged,
    Kind,
    Rules,
    Seen,
    Tick,
    Verdict,
)

NOW = 1e9


@pytest.mark.parametrize("seeds", [pytest.param(range(20), id="few"), pytest.param(range(1000), id="bar", marks=pytest.mark.bar)])
def test_in_any_order_of_events_no_healthy_node_stays_out_and_the_limits_hold(seeds: range) -> None:
    worlds = [World(seed).run() for seed in seeds]

    assert {world.seed: world.wrong[:2] for world in worlds if world.wrong} == {}
    assert sum(world.drains for world in worlds) > 2 * len(worlds) and sum(world.opened for world in worlds) > len(worlds) / 4


def fleet_after(*events: Event, fleet: Fleet | None = None, rules: Rules = RULES) -> Fleet:
    after, _ = advance(fleet or Fleet(NOW, NOW - DAY), rules, events)
    return after


def evidence(kind: Kind, time: float, job: str = "", node: str = "node1") -> Evidence:
    return Evidence(node, f"{kind} {time} {job}", kind, time, job=job)


def drained(fleet: Fleet, time: float, node: str = "node1") -> Fleet:
    """Return the fleet after the scheduler drained a node on which nothing runs, and the test was asked for."""
    return fleet_after(Seen(node, time, "us"), Tick(time + 1, 10), fleet=fleet)


def returned() -> Fleet:
    out = drained(fleet_after(Seen("node1", NOW), evidence("xid", NOW - HOUR), Tick(NOW + 1, 10)), NOW + 60)
    return fleet_after(Judged("node1", out.nodes["node1"].test, NOW + 90, "fit"), Tick(NOW + 100, 10), fleet=out)


def test_a_node_goes_out_is_tested_and_returns_and_is_healthy_after_its_probation() -> None:
    seen = Seen("node1", NOW)
    suspect = fleet_after(seen, evidence("hang", NOW - HOUR, "a"), Tick(NOW + 1, 10))
    out = fleet_after(seen, evidence("hang", NOW - HOUR, "b"), Tick(NOW + 2, 10), fleet=suspect)
    draining = fleet_after(Seen("node1", NOW + 60, "us", busy=True), Tick(NOW + 61, 10), fleet=out)
    testing = drained(draining, NOW + 120)
    back = fleet_after(Judged("node1", testing.nodes["node1"].test, NOW + 180, "fit"), fleet=testing)
    healthy = fleet_after(Seen("node1", NOW + 2 * DAY), Tick(NOW + 2 * DAY, 10), fleet=back)

    states = [one.nodes["node1"].state for one in (suspect, out, draining, testing, back)]
    assert states == ["suspect", "quarantined", "draining", "testing", "returned"]
    assert "node1" not in healthy.nodes or healthy.nodes["node1"].state == "healthy"


@pytest.mark.parametrize("verdict", ["unfit", "not judged"])
def test_a_test_that_does_not_show_a_node_fit_keeps_it_out_and_is_repeated(verdict: Verdict) -> None:
    testing = drained(fleet_after(Seen("node1", NOW), evidence("xid", NOW - HOUR), Tick(NOW + 1, 10)), NOW + 60)

    failed = fleet_after(
        Judged("node1", testing.nodes["node1"].test, NOW + 90, verdict, "slow"), Tick(NOW + 100, 10), fleet=testing
    )
    again = drained(failed, NOW + 2 * HOUR)

    assert (failed.nodes["node1"].state, failed.nodes["node1"].why) == ("quarantined", f"its test: {verdict}: slow")
    assert again.nodes["node1"].state == "testing"


def test_late_events_of_a_node_that_returned_or_booted_do_nothing() -> None:
    late = [evidence("xid", NOW - 2 * HOUR), evidence("preflight", NOW + 90)]
    back = fleet_after(Seen("node1", NOW + 200), *late, Tick(NOW + 201, 10), fleet=returned())
    booted = fleet_after(Seen("node1", NOW), Booted("node1", NOW - 60), evidence("xid", NOW - HOUR), Tick(NOW + 1, 10))

    assert back.nodes["node1"].state == "returned" and not back.nodes["node1"].evidence
    assert booted.nodes["node1"].state == "healthy"


def test_evidence_of_one_job_does_not_take_a_node_out_however_often_it_comes() -> None:
    events = [evidence(kind, NOW - number * 60, "job") for number in range(1, 5) for kind in ("hang", "host_lost", "killed")]

    assert fleet_after(Seen("node1", NOW), *events, Tick(NOW + 1, 10)).nodes["node1"].state == "suspect"


def test_a_storm_opens_the_breaker_before_any_node_is_out_and_a_person_closes_it() -> None:
    storm = [
        event for number in range(8) for event in (Seen(f"node{number}", NOW), evidence("xid", NOW - 60, node=f"node{number}"))
    ]

    opened = fleet_after(*storm, Tick(NOW + 1, 10))
    closed = fleet_after(CloseBreaker(NOW + 60, "me"), *storm, Tick(NOW + 61, 10), fleet=opened)

    assert {node.held for node in opened.nodes.values()} == {"the breaker is open"} and opened.breaker_opened_at
    assert not closed.breaker_opened_at and {node.state for node in closed.nodes.values()} <= {"suspect", "healthy"}


def test_a_node_that_a_person_put_back_by_the_scheduler_is_returned_and_one_that_a_person_cordoned_stays() -> None:
    out = drained(fleet_after(Seen("node1", NOW), evidence("xid", NOW - HOUR), Tick(NOW + 1, 10)), NOW + 60)
    by_scheduler = fleet_after(Seen("node1", NOW + 120), Tick(NOW + 121, 10), fleet=out)
    cordoned = fleet_after(Cordon("node1", NOW + 70, "me", "fans"), Tick(NOW + 80, 10), fleet=out)
    tested = fleet_after(Judged("node1", out.nodes["node1"].test, NOW + 90, "fit"), Tick(NOW + 7 * HOUR, 10), fleet=cordoned)

    assert by_scheduler.nodes["node1"].state == "returned"
    assert (tested.nodes["node1"].state, tested.nodes["node1"].why) == ("quarantined", "fans (by me)")


def test_without_a_limit_that_the_number_of_nodes_allows_none_is_taken_out() -> None:
    rules = msgspec.structs.replace(RULES, most_out=None, most_out_percent=5.0)

    node = fleet_after(Seen("node1", NOW), evidence("xid", NOW - 60), Tick(NOW + 1, 10), rules=rules).nodes["node1"]

    assert (node.state, node.held) == ("suspect", "0 of 10 nodes are out; at most 0 may be")
