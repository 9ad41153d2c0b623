from pathlib import Path

import numpy as np

from planting import Planted
from tachoscope_analyzers.trace.events.host_collectives import backend_annotations, host_collectives, levels_above
from tachoscope_analyzers.trace.events.view import TraceView

NOTED = {"Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float"}


def test_backends_that_transfer_themselves_are_told_from_those_that_launch(tmp_path: Path) -> None:
    trace = Planted()
    trace.annotation("gloo:all_reduce", 0, 10)
    trace.annotation("nccl:broadcast", 20, 10)
    trace.annotation("nccl:coalesced", 40, 10)
    trace.annotation("forward", 60, 10)
    found = backend_annotations(trace.read(tmp_path))
    assert found.rows.tolist()[:2] == [0, 1]
    assert found.only_launch.tolist()[:2] == [False, True]
    assert 3 not in found.rows


def test_a_call_and_the_annotation_in_it_are_one_collective(tmp_path: Path) -> None:
    trace = Planted()
    outer = trace.op("record_param_comms", 0, 100, **NOTED)
    inner = trace.annotation("nccl:all_reduce", 10, 80)
    alone = trace.op("record_param_comms", 200, 100, **NOTED)
    view = TraceView(trace.read(tmp_path))
    found = host_collectives(view.trace, view.operator_of, np.zeros(0, dtype=np.int64))
    assert sorted(found.rows.tolist()) == [inner, alone]
    assert outer not in found.rows and found.only_launch.all()


def test_what_launched_a_kernel_is_left_to_the_kernel(tmp_path: Path) -> None:
    trace = Planted()
    trace.annotation("nccl:all_reduce", 10, 80)
    trace.kernel("ncclDevKernel_AllReduce", 500, 10, launched=20, launch_duration=5)
    trace.annotation("nccl:all_reduce", 310, 80)
    view = TraceView(trace.read(tmp_path))
    found = host_collectives(view.trace, view.operator_of, view.work.launch)
    assert view.trace.start[found.rows].tolist() == [310]


def test_levels_end_in_nothing() -> None:
    operator_of = np.array([-1, 0, 1])
    assert [level.tolist() for level in levels_above(np.array([2, -1]), operator_of)] == [[1, -1], [0, -1], [-1, -1], [-1, -1]]
    assert all(level.tolist() == [-1] for level in levels_above(np.array([-1]), np.zeros(0, dtype=np.int64)))
