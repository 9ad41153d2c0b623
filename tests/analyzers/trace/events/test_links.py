from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import Planted
from tachoscope_analyzers.trace.events.launch_links import device_work, enclosing_operators
from tachoscope_analyzers.trace.reading.event_kinds import Kind


def test_device_work_is_sorted_and_linked_to_its_launches(tmp_path: Path) -> None:
    planted, chance = Planted(), random.Random(5)
    launches = {}
    for number in range(23):
        name, start = f"kernel {number}", chance.randrange(10**6, 10**7)
        launches[name] = None if number % 4 == 0 else number * 20_000
        planted.kernel(name, start, 100, launched=launches[name], stream=chance.choice([7, 9]), device=chance.choice([0, 1]))
    trace = planted.read(tmp_path)
    work = device_work(trace)
    assert len(work) == 23
    order = list(zip(work.device.tolist(), work.stream.tolist(), work.start.tolist(), strict=True))
    assert order == sorted(order)
    for name, launch in zip(trace.names(work.row).tolist(), work.launch.tolist(), strict=True):
        assert (launch >= 0) == (launches[name] is not None)
        if launch >= 0:
            assert trace.start[launch] == launches[name]
    assert (work.end - work.start).tolist() == [100] * 23


def test_a_stream_among_a_host_events_arguments_makes_no_kernel_of_it(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("record_param_comms", 0, 1000, stream=7, device=0)
    planted.add("cuda_sync", "Stream Sync", 0, 1000, pid=0, tid=7, stream=7, device=0)
    planted.kernel("gemm", 100, 10)
    trace = planted.read(tmp_path)
    work = device_work(trace)
    assert trace.names(work.row).tolist() == ["gemm"]
    assert work.kind.tolist() == [Kind.KERNEL]


def test_of_several_calls_with_one_id_the_last_before_the_kernel_launched_it(tmp_path: Path) -> None:
    planted = Planted()
    for start in (1000, 5000, 9000):
        planted.call("cudaLaunchKernel", start, 100, correlation=77)
    for start in (6000, 20_000, 500):
        planted.device("kernel", f"at {start}", start, 10, correlation=77)
    trace = planted.read(tmp_path)
    work = device_work(trace)
    found = dict(zip(trace.names(work.row).tolist(), trace.start[work.launch].tolist(), strict=True))
    assert found == {"at 6000": 5000, "at 20000": 9000, "at 500": 1000}


def test_the_kernels_of_a_graph_share_their_launch(tmp_path: Path) -> None:
    planted = Planted()
    graph = planted.call("cudaGraphLaunch", 0, 100)
    for number in range(5):
        planted.device("kernel", f"node {number}", 1000 + number * 10, 5, correlation=graph)
    work = device_work(planted.read(tmp_path))
    assert len(set(work.launch.tolist())) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=8),
    kernels=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=8),
)
def test_links_agree_with_a_search_through_all_calls(
    calls: list[tuple[int, int]], kernels: list[tuple[int, int]], tmp_path: Path
) -> None:
    planted = Planted()
    for correlation, start in calls:
        planted.call("cudaLaunchKernel", start, 1, correlation=correlation)
    for correlation, start in kernels:
        planted.device("kernel", "k", start, 1, correlation=correlation)
    trace = planted.read(tmp_path)
    work = device_work(trace)
    for row, launch in zip(work.row.tolist(), work.launch.tolist(), strict=True):
        correlation, start = trace.events["correlation"][row], int(trace.start[row])
        same = sorted(one for number, one in calls if number == correlation)
        before = [one for one in same if one <= start]
        expected = before[-1] if before else same[0] if same else None
        assert (int(trace.start[launch]) if launch >= 0 else None) == expected


def test_a_launch_belongs_to_the_operator_around_it_also_through_a_driver_call(tmp_path: Path) -> None:
    planted = Planted()
    outer = planted.op("aten::linear", 0, 1000)
    inner = planted.op("aten::mm", 100, 500)
    planted.call("cudaLaunchKernelExC", 200, 50)
    driver = planted.add("cuda_driver", "cuLaunchKernelEx", 210, 20, correlation=9)
    alone = planted.op("aten::add", 2000, 10)
    other = planted.op("elsewhere", 150, 10, tid=5)
    planted.kernel("gemm", 300, 10)
    found = enclosing_operators(planted.read(tmp_path))
    assert found[driver] == inner
    assert found[driver - 1] == inner
    assert found[inner] == outer
    assert [int(found[row]) for row in (outer, alone, other)] == [-1, -1, -1]
    assert found[-1] == -1


def test_an_empty_trace_has_no_work(tmp_path: Path) -> None:
    trace = Planted().read(tmp_path)
    assert len(device_work(trace)) == len(enclosing_operators(trace)) == 0
    assert device_work(trace).launch.dtype == np.int64
