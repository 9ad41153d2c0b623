from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planting import MAIN, Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.analyses.collectives import Collectives, collectives
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
ARGS = {
    "Collective name": "allreduce",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "Group size": 4,
    "Process Group Name": "7",
    "Process Group Description": "dp",
    "Process Group Ranks": "[0, 1, 2, 3]",
    "dtype": "Float",
}


def found(trace: Planted, folder: Path) -> Collectives:
    return collectives(TraceView(trace.read(folder)))


def test_a_kernel_tells_its_message_its_group_and_both_bandwidths(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(3, 0, 100_000)
    trace.kernel(ALL_REDUCE, 20_000, 10_000, launched=1_000, stream=20, **ARGS)
    (row,) = found(trace, tmp_path).each.itertuples()
    assert (row.side, row.kind, row.group, row.group_description, row.group_size) == ("device", "all_reduce", "7", "dp", 4)
    assert (row.bytes, row.duration_ns, row.exposed_ns, row.step, row.stream) == (4_000, 10_000, 10_000, 3, 20)
    assert row.algorithm_bandwidth_gb_per_s == pytest.approx(0.4)
    assert row.bus_bandwidth_gb_per_s == pytest.approx(0.4 * 2 * 3 / 4)


def test_what_the_call_around_the_launch_notes_counts_for_the_kernel(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("record_param_comms", 1_000, 9_000, **ARGS)
    trace.annotation("nccl:all_reduce", 2_000, 7_000)
    trace.kernel(ALL_REDUCE, 20_000, 10_000, launched=3_000)
    each = found(trace, tmp_path).each
    assert len(each) == 1  # the host's side of it is not a second collective
    assert each["bytes"].tolist() == [4_000]
    assert each["group"].tolist() == ["7"]


def test_an_old_trace_tells_the_message_by_the_shapes_of_the_annotation(tmp_path: Path) -> None:
    trace = Planted()
    shapes = {"Input Dims": [[6, 1024], [10]], "Input type": ["float", "long int"]}
    trace.annotation("nccl:all_to_all", 1_000, 9_000, **shapes)
    trace.kernel(SEND_RECV, 20_000, 10_000, launched=3_000)
    (row,) = found(trace, tmp_path).each.itertuples()
    assert row.kind == "all_to_all"  # the kernel alone would be a send and receive
    assert row.bytes == 6 * 1024 * 4 + 10 * 8
    assert np.isnan(row.bus_bandwidth_gb_per_s)  # of how many ranks is not known


def test_a_kernel_with_nothing_around_it_has_its_kind_but_no_size(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", 1_000, 500)
    trace.kernel("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(...)", 2_000, 500)
    trace.kernel("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", 3_000, 500)
    result = found(trace, tmp_path)
    assert result.each["kind"].tolist() == ["broadcast", "all_reduce", "other"]
    assert result.each["bytes"].tolist() == [-1, -1, -1]
    assert result.by_group["bytes"].tolist() == [-1, -1, -1]
    assert result.each["algorithm_bandwidth_gb_per_s"].isna().all()


def test_a_size_that_is_not_known_is_not_taken_for_nothing_in_the_sum(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel(ALL_REDUCE, 1_000, 500, **ARGS)
    trace.kernel(ALL_REDUCE, 3_000, 500, **{key: value for key, value in ARGS.items() if key != "In msg nelems"})
    assert found(trace, tmp_path).by_group["bytes"].tolist() == [-1]


def test_gloo_collectives_are_the_hosts_own_and_are_exposed_where_no_operator_runs(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::mm", 0, 30_000)
    trace.op("c10d::allreduce_", 20_000, 40_000, tid=MAIN)
    trace.add("user_annotation", "gloo:all_reduce", 10_000, 50_000, tid=9, **{"Input Dims": [[256]], "Input type": ["float"]})
    (row,) = found(trace, tmp_path).each.itertuples()
    assert (row.side, row.kind, row.bytes, row.exposed_ns) == ("host", "all_reduce", 1024, 30_000)


def test_a_call_of_nccl_without_its_kernel_is_a_launch_and_no_transfer(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("record_param_comms", 1_000, 9_000, **ARGS)
    trace.annotation("nccl:all_reduce", 2_000, 7_000)
    result = found(trace, tmp_path)
    (row,) = result.each.itertuples()
    assert (row.side, row.bytes, row.exposed_ns) == ("launch", 4_000, 0)
    assert np.isnan(row.bus_bandwidth_gb_per_s)
    assert result.exposed_ns == 0


def test_waits_and_the_making_of_groups_are_no_collectives(tmp_path: Path) -> None:
    trace = Planted()
    for number, name in enumerate(("wait", "init", "")):
        trace.op("record_param_comms", 1_000 * number, 500, **{**ARGS, "Collective name": name})
    assert found(trace, tmp_path).each.empty


def test_the_description_of_the_trace_completes_what_the_events_leave_out(tmp_path: Path) -> None:
    trace = Planted(rank=1, world_size=4)
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]}
    trace.extra["distributedInfo"] = {"backend": "nccl", "rank": 1, "world_size": 4, "pg_config": [group]}
    trace.annotation("nccl:all_reduce", 1_000, 9_000, **{"Input Dims": [[100]], "Input type": ["float"]})
    trace.kernel(ALL_REDUCE, 20_000, 1_000, launched=3_000)
    (row,) = found(trace, tmp_path).each.itertuples()
    assert (row.group, row.group_description, row.group_size, row.group_ranks) == ("0", "default_pg", 4, "[0, 1, 2, 3]")
    assert row.bus_bandwidth_gb_per_s == pytest.approx(0.4 * 1.5)


def test_the_step_is_the_one_that_launched_the_collective(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(0, 0, 100_000)
    trace.step(1, 100_000, 100_000)
    trace.kernel("sgemm", 10_000, 100_000, launched=5_000)
    trace.kernel(ALL_REDUCE, 120_000, 10_000, launched=90_000, stream=20, **ARGS)
    assert found(trace, tmp_path).each["step"].tolist() == [0]


SPANS = st.lists(st.tuples(st.booleans(), st.integers(0, 300), st.integers(0, 60), st.integers(0, 1)), max_size=25)
"""Kernels: whether they communicate, start and duration in us, device."""


@given(spans=SPANS)
def test_exposed_time_is_the_collectives_time_without_any_computing(spans, tmp_path_factory) -> None:
    trace = Planted()
    trace.op("aten::empty", 0, 1)
    for stream, (communicates, start, duration, device) in enumerate(spans):  # on one stream nothing outlasts its successor
        trace.kernel(ALL_REDUCE if communicates else "sgemm", 1_000 * start, 1_000 * duration, stream=stream, device=device)
    result = found(trace, tmp_path_factory.mktemp("planted"))
    assert result.each["duration_ns"].sum() == 1_000 * sum(duration for communicates, _, duration, _ in spans if communicates)
    exposed = 0
    for device in (0, 1):
        moments: dict[bool, set[int]] = {True: set(), False: set()}
        for communicates, start, duration, place in spans:
            if place == device:
                moments[communicates] |= set(range(start, start + duration))
        exposed += 1_000 * len(moments[True] - moments[False])
    assert result.exposed_ns == exposed
    assert result.by_group["exposed_ns"].sum() == exposed  # all are of one group and kind


@pytest.mark.parametrize("name", ALL)
def test_on_every_recorded_trace_each_communication_kernel_is_one_row(name: str) -> None:
    view = TraceView(read(recorded(name)))
    result = collectives(view)
    device = result.each[result.each["side"] == "device"]
    mine = view.classes.is_any(COMMUNICATION)
    assert len(device) == mine.sum()
    assert device["duration_ns"].sum() == (view.work.end - view.work.start)[mine].sum()
    assert ((result.each["exposed_ns"] >= 0) & (result.each["exposed_ns"] <= result.each["duration_ns"])).all()
    assert result.by_group["count"].sum() == len(result.each)


def test_the_messages_of_a_recorded_job_are_those_that_its_kernels_note() -> None:
    result = collectives(TraceView(read(recorded("hta/a100_nccl_2rank_rank0"))))
    table = result.by_group.set_index("kind")
    assert table["count"].to_dict() == {"all_reduce": 15, "broadcast": 6}
    assert table.loc["all_reduce", "bytes"] == 306_684_384
    assert (result.each["group_description"] == "default_pg").all()


@pytest.mark.parametrize("build", [lambda trace: None, lambda trace: trace.op("aten::mm", 0, 5)], ids=["no event", "one event"])
def test_a_trace_without_collectives_has_empty_tables_with_all_columns(build, tmp_path: Path) -> None:
    trace = Planted()
    build(trace)
    result = found(trace, tmp_path)
    assert result.each.empty and result.by_group.empty and result.exposed_ns == 0
    assert {"kind", "bytes", "exposed_ns", "bus_bandwidth_gb_per_s"} <= set(result.each.columns)
