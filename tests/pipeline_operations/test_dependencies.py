"""Who waits for whom, in recorded schedules."""

from pathlib import Path

import pandas as pd
import pytest
from benchmarks.pipeline_operations.dependencies import Graph, dependencies
from benchmarks.pipeline_operations.operations import Operation, Operations, dense
from benchmarks.pipeline_operations.reading import read
from operations_making import Plan, operations, write

from tachoscope_core.errors import TachoscopeError


def graph(folder: Path, plan: Plan) -> tuple[Operations, Graph]:
    found = dense(read(write(folder, plan)))
    return found, dependencies(found)


def partners(found: Operations, made: Graph, optype: str) -> list[list[Operation]]:
    groups = [[found.each[number] for number in group.members] for group in made.groups]
    return [group for group in groups if any(one.optype == optype for one in group)]


@pytest.mark.parametrize("plan", [Plan(steps=3), Plan(steps=3, stages=2, chunks=3), Plan(steps=3, batches=2)])
def test_each_receive_has_the_send_of_the_neighbour(tmp_path: Path, plan: Plan) -> None:
    found, made = graph(tmp_path, plan)

    for kind, step in (("forward", 1), ("backward", -1)):
        pairs = partners(found, made, f"{kind}-send")
        assert len(pairs) == plan.batches * (plan.stages * plan.chunks - 1)
        for pair in pairs:
            send, receive = sorted(pair, key=lambda one: one.optype, reverse=True)
            assert (send.optype, receive.optype) == (f"{kind}-send", f"{kind}-recv")
            assert (receive.stage - send.stage) % plan.stages == step % plan.stages


def test_the_collectives_meet_whom_they_are_of(tmp_path: Path) -> None:
    found, made = graph(tmp_path, Plan(steps=3))
    everywhere = {found.each[group.members[0]].optype for group in made.groups if group.everywhere}

    assert everywhere == {"params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad"}
    assert [len(group) for group in partners(found, made, "params-all-gather")] == [1] * 4
    assert [len(group) for group in partners(found, made, "optimizer-clip-main-grad")] == [4]
    assert [[one.stage for one in group] for group in partners(found, made, "embedding-grads-all-reduce")] == [[0, 3]]


def test_groups_come_after_all_that_they_wait_for(tmp_path: Path) -> None:
    _, made = graph(tmp_path, Plan(steps=3))
    place = {number: index for index, group in enumerate(made.groups) for number in group.members}

    assert len(place) == len(made.before)
    assert all(place[one] < place[number] for number, before in enumerate(made.before) for one in before)


def test_in_the_blocking_schedule_every_operation_is_in_line_and_in_the_other_sends_are_not(tmp_path: Path) -> None:
    _, blocking = graph(tmp_path, Plan(steps=3))
    found, other = graph(tmp_path, Plan(steps=3, stages=2, chunks=2))

    assert all(blocking.inline)
    assert {found.each[number].optype for number, inline in enumerate(other.inline) if not inline} == {
        "forward-send",
        "backward-send",
    }


def test_a_send_and_a_receive_in_one_call_wait_for_the_same(tmp_path: Path) -> None:
    found, made = graph(tmp_path, Plan(steps=3))
    numbers = {(one.stage, one.optype, one.number): number for number, one in enumerate(found.each)}
    # Stage 1 of 4 runs two forwards ahead, then sends the third and receives the first backward at once.
    send, receive = numbers[1, "forward-send", 2], numbers[1, "backward-recv", 0]

    assert made.before[send] == made.before[receive] == (numbers[1, "forward-compute", 2],)
    assert set(made.before[numbers[1, "backward-compute", 0]]) == {send, receive}


def test_receives_that_do_not_fit_the_computing_are_refused(tmp_path: Path) -> None:
    rows = operations(Plan(steps=3))
    lost = (rows["optype"] == "backward-recv") & (rows["stage"] == 1) & (rows["seq_id"] >= 6)
    path = tmp_path / "trace-x.parquet"
    rows[~lost].to_parquet(path)

    with pytest.raises(TachoscopeError, match="stage 1 has 6 backward-recv a step for 8 backward-compute"):
        dependencies(dense(read(path)))


def test_orders_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """Two stages that each say that they met the other's second transfer before their own first one."""
    rows = operations(Plan(steps=3, stages=2, replicas=1, batches=4))
    early = (rows["optype"] == "optimizer-clip-main-grad") & (rows["stage"] == 0)
    rows.loc[early, "start_ts"] = -1.0
    gathers = (rows["optype"] == "embedding-grads-all-reduce") & (rows["stage"] == 1)
    rows.loc[gathers, "start_ts"] = 10.0
    path = tmp_path / "trace-x.parquet"
    pd.DataFrame(rows).to_parquet(path)

    with pytest.raises(TachoscopeError, match="contradicts that of others"):
        dependencies(dense(read(path)))
