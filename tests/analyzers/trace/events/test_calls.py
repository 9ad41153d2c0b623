from pathlib import Path

import numpy as np
import pytest

from planting import Planted
from tachoscope_analyzers.trace.events.runtime_calls import Role, role_of, roles


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cudaDeviceSynchronize", Role.DEVICE_SYNC),
        ("hipDeviceSynchronize", Role.DEVICE_SYNC),
        ("cuCtxSynchronize", Role.DEVICE_SYNC),
        ("cudaStreamSynchronize_v3020", Role.STREAM_SYNC),
        ("cudaEventSynchronize", Role.EVENT_SYNC),
        ("hipStreamWaitEvent", Role.STREAM_WAIT),
        ("cuStreamWaitEvent", Role.STREAM_WAIT),
        ("cudaMemcpy", Role.BLOCKING_COPY),
        ("cudaMemcpy2D", Role.BLOCKING_COPY),
        ("hipMemcpyWithStream", Role.BLOCKING_COPY),
        ("cuMemcpyDtoH_v2", Role.BLOCKING_COPY),
        ("cudaMemcpyAsync", Role.OTHER),
        ("cuMemcpyDtoHAsync_v2", Role.OTHER),
        ("cudaMemcpyBatchAsync", Role.OTHER),
        ("cudaMalloc", Role.ALLOCATION),
        ("cuMemCreate", Role.ALLOCATION),
        ("hipHostMalloc", Role.ALLOCATION),
        ("cudaFree", Role.FREE),
        ("cuMemUnmap", Role.FREE),
        ("cudaLaunchKernel", Role.OTHER),
        ("cudaEventQuery", Role.OTHER),
        ("cudaEventRecord", Role.OTHER),
        ("cudaFuncGetAttributes", Role.OTHER),
        ("cudaMemsetAsync", Role.OTHER),
    ],
)
def test_the_role_of_a_call_follows_from_its_name(name: str, role: Role) -> None:
    assert role_of(name) == role


def test_only_runtime_calls_have_a_role(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("cudaDeviceSynchronize", 0, 10)
    planted.call("cudaDeviceSynchronize", 20, 10)
    trace = planted.read(tmp_path)
    assert roles(trace, np.arange(2)).tolist() == [Role.OTHER, Role.DEVICE_SYNC]
