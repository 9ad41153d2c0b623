"""The period of a kernel sequence."""

from itertools import pairwise
from pathlib import Path

import pytest

from planting import Planted
from tachoscope_analyzers.trace.events.periods import marks_in_device_work
from tachoscope_analyzers.trace.events.view import TraceView

US = 1_000
T = 1_000_000 * US


def marks(trace: Planted, folder: Path) -> list[int]:
    view = TraceView(trace.read(folder))
    return [int(mark - T) // US for mark in marks_in_device_work(view.trace, view.work)]


def test_steps_are_found_by_the_kernel_that_runs_once_in_each_and_not_by_their_layers(tmp_path: Path) -> None:
    trace, now = Planted(), T
    for _ in range(23):
        for name in ["embed", *["gemm", "softmax", "gemm", "add"] * 6, "loss", *["gemm", "add", "mul"] * 6, "adam"]:
            trace.kernel(name, now, 8 * US, launched=now - 20 * US)
            now += 10 * US
    found = marks(trace, tmp_path)
    assert len(found) == 23
    assert {later - earlier for earlier, later in pairwise(found)} == {450}


def test_a_sequence_in_which_nothing_repeats_has_no_period(tmp_path: Path) -> None:
    trace = Planted()
    for kernel in range(60):
        trace.kernel(f"kernel_{'abcdefghij'[kernel % 7]}{kernel * kernel % 11}", T + kernel * (10 + kernel) * US, 8 * US)
    assert marks(trace, tmp_path) == []


def test_what_repeats_within_one_graph_are_layers(tmp_path: Path) -> None:
    trace = Planted()
    correlation = trace.call("cudaGraphLaunch", T - 50 * US, 10 * US)
    for kernel in range(60):
        trace.device(
            "kernel", ["norm", "gemm", "attn", "gemm", "add"][kernel % 5], T + kernel * 10 * US, 8 * US, correlation=correlation
        )
    assert marks(trace, tmp_path) == []


@pytest.mark.parametrize("kernels", [0, 1, 5])
def test_few_kernels_have_no_period(tmp_path: Path, kernels: int) -> None:
    trace = Planted()
    for kernel in range(kernels):
        trace.kernel("k", T + kernel * 10 * US, 8 * US)
    assert marks(trace, tmp_path) == []
