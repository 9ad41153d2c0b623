"""What the driving threads of the host did, told by names."""

from pathlib import Path

import numpy as np
import pytest

from planting import BACKWARD, MAIN, Planted
from tachoscope_analyzers.trace.events import host_spans as host
from tachoscope_analyzers.trace.events.view import TraceView

US = 1_000
T = 1_000_000 * US


@pytest.mark.parametrize(
    ("category", "name", "cause"),
    [
        ("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", host.DATA_LOADING),
        ("cpu_op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", host.DATA_LOADING),
        ("python_function", "torch/utils/data/dataloader.py(708): __next__", host.DATA_LOADING),
        ("user_annotation", "## data_load ##", host.DATA_LOADING),
        ("python_function", "torch/serialization.py(944): save", host.CHECKPOINT),
        ("user_annotation", "save_checkpoint", host.CHECKPOINT),
        ("python_function", "train.py(88): evaluate", host.EVALUATION),
        ("user_annotation", "val_epoch", host.EVALUATION),
        ("python_function", "<built-in function collect>", host.GARBAGE_COLLECTION),
        ("user_annotation", "gloo:all_reduce", host.COMMUNICATION),
        ("python_function", "torch/distributed/distributed_c10d.py(4100): barrier", host.COMMUNICATION),
        ("cuda_runtime", "cudaStreamSynchronize", host.SYNCHRONISATION),
        ("cuda_runtime", "cudaMalloc", host.ALLOCATOR),
        # names that only look like it
        ("python_function", "torch/utils/checkpoint.py(481): checkpoint", None),
        ("python_function", "torch/nn/modules/module.py(2427): eval", None),
        ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", None),
        ("user_annotation", "nccl:all_reduce", None),
        ("cuda_runtime", "cudaStreamWaitEvent", None),
        ("cuda_runtime", "cudaMemcpyAsync", None),
        ("kernel", "evaluate", None),
    ],
)
def test_the_name_tells_the_cause(tmp_path: Path, category: str, name: str, cause: str | None) -> None:
    trace = Planted()
    trace.add(category, name, T, 100 * US, **({"Python id": 1} if category == "python_function" else {}))
    spans = TraceView(trace.read(tmp_path)).host
    assert [found for found, parts in spans.causes.items() if parts.time.total] == ([cause] if cause else [])


def test_only_threads_that_launch_or_carry_the_steps_count(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(0, T, 100 * US)
    trace.kernel("k", T, US, launched=T - 10 * US, tid=BACKWARD)
    for tid in (MAIN, BACKWARD, 555):
        trace.call("cudaDeviceSynchronize", T + tid * 10 * US, 5 * US, tid=tid)
    view = TraceView(trace.read(tmp_path))
    assert view.host.of_cause(host.SYNCHRONISATION).time.total == 10 * US
    assert {view.trace.meta.tracks[track].thread for track in view.host.tracks} == {str(MAIN), str(BACKWARD)}


def test_a_moment_is_told_the_outermost_event_around_it(tmp_path: Path) -> None:
    trace = Planted()
    trace.annotation("enumerate(DataLoader)#x.__next__", T, 100 * US)
    trace.add("python_function", "torch/utils/data/dataloader.py(708): __next__", T + 5 * US, 90 * US)
    view = TraceView(trace.read(tmp_path))
    spans = view.host.of_cause(host.DATA_LOADING)
    rows = spans.at(view.trace, np.array([T - 1, T, T + 50 * US, T + 100 * US]))
    assert rows.tolist() == [-1, 0, 0, -1]


def test_marks_of_the_loop_are_no_activity(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("ProfilerStep#3", T, 100 * US)
    trace.op("aten::add", T + 10 * US, 20 * US)
    trace.call("cudaEventRecord", T + 50 * US, 10 * US)
    assert TraceView(trace.read(tmp_path)).host.active.total == 30 * US
