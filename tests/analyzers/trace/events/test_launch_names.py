"""Which calls launch kernels."""

from pathlib import Path

import numpy as np

from planting import Planted
from tachoscope_analyzers.trace.events.launch_names import is_kernel_launch

LAUNCHES = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaLaunchCooperativeKernel", "hipExtModuleLaunchKernel"]
OTHERS = ["cudaGraphLaunch", "cudaMemsetAsync", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaLaunchHostFunc"]


def test_kernel_launches_of_cuda_and_rocm_are_told_from_other_calls(tmp_path: Path) -> None:
    trace = Planted()
    for place, name in enumerate(LAUNCHES + OTHERS):
        trace.call(name, 1_000_000 + place * 10_000, 5_000)
    found = trace.read(tmp_path)
    assert is_kernel_launch(found, np.arange(len(found.events))).tolist() == [True] * len(LAUNCHES) + [False] * len(OTHERS)


def test_no_rows_no_launches(tmp_path: Path) -> None:
    assert is_kernel_launch(Planted().read(tmp_path), np.zeros(0, dtype=np.int64)).tolist() == []
