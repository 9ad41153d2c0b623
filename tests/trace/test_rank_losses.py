"""Losses of one rank: each fault planted in every step comes back as its class, with its seconds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from planting import Planted
from tachoscope_analyzers.trace.rank_losses import Loss, rank_losses
from tachoscope_analyzers.trace.view import View

MS = 1_000_000
STEP = 20 * MS
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
Fault = Callable[[Planted, int], None]


def planted(fault: Fault, *, kernel: str = GEMM, blocks: float = 4.0) -> Planted:
    """Eight steps of 20 ms: the fault has the first 5 ms, then one kernel computes for 15."""
    job = Planted()
    for number in range(8):
        begin = 1_000 * MS + number * STEP
        job.step(number, begin, STEP)
        fault(job, begin)
        job.op("aten::mm", begin + 5 * MS - 20_000, 15_000)
        job.kernel(kernel, begin + 5 * MS, 15 * MS, launched=begin + 5 * MS - 12_000, **{"blocks per SM": blocks})
    return job


def losses(tmp_path: Path, job: Planted) -> dict[str, Loss]:
    return {loss.slug: loss for loss in rank_losses(View(job.read(tmp_path))).losses}


def no_fault(job: Planted, begin: int) -> None:
    job.op("aten::relu", begin, 10_000)
    job.kernel(GEMM, begin, 5 * MS - 1_000, launched=begin - 10_000, **{"blocks per SM": 4.0})


def loading(job: Planted, begin: int) -> None:
    job.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begin, 5 * MS - 30_000)


def preprocessing(job: Planted, begin: int) -> None:
    loading(job, begin)
    job.op("aten::normalise", begin + 10_000, 4 * MS)


def synchronising(job: Planted, begin: int) -> None:
    job.op("aten::item", begin, 4_970_000)
    job.call("cudaStreamSynchronize", begin + 5_000, 4_960_000)


def copying(job: Planted, begin: int) -> None:
    job.op("aten::to", begin, 20_000)
    correlation = job.call("cudaMemcpyAsync", begin + 1_000, 8_000)
    job.device(
        "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", begin + 10_000, 4_900_000, correlation=correlation, bytes=50_000_000
    )


def allocating(job: Planted, begin: int) -> None:
    job.call("cudaMalloc", begin, 4_970_000)


def launching(job: Planted, begin: int) -> None:
    for place in range(50):
        at = begin + place * 97_000
        job.op("aten::add", at, 90_000)
        job.kernel("vectorized_elementwise_kernel", at + 88_000, 2_000, launched=at + 80_000, **{"blocks per SM": 2.0})


def pausing(job: Planted, begin: int) -> None:
    job.annotation("gc.collect", begin, 4_960_000)


def communicating(job: Planted, begin: int) -> None:
    job.op("nccl:all_reduce", begin, 20_000)
    job.kernel(
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        begin + 15_000,
        4_900_000,
        launched=begin + 5_000,
    )


def saving(job: Planted, begin: int) -> None:
    job.annotation("torch.save", begin, 4_960_000)


@pytest.mark.parametrize(
    ("fault", "slug"),
    [
        (loading, "input_workers"),
        (preprocessing, "input_preprocess"),
        (synchronising, "host_sync"),
        (copying, "h2d_copy"),
        (allocating, "memory_thrash"),
        (launching, "launch_bound"),
        (pausing, "host_pause"),
        (communicating, "comm_exposed"),
        (saving, "checkpoint_stall"),
    ],
)
def test_a_planted_fault_comes_back_as_its_class_with_its_five_milliseconds(tmp_path: Path, fault: Fault, slug: str) -> None:
    found = losses(tmp_path, planted(fault))

    largest = max(found.values(), key=lambda loss: float(loss.seconds.sum()))
    assert largest.slug == slug
    # The first step's fault stands before the device's first work, where nothing is known of the device.
    assert largest.seconds[1:] == pytest.approx(0.005, abs=0.0003)
    assert largest.evidence
    others = [loss for loss in found.values() if loss.slug != slug]
    assert all(loss.seconds[1:].max() < 0.0004 for loss in others), others


def test_a_step_that_computes_has_no_loss_worth_naming(tmp_path: Path) -> None:
    assert all(loss.seconds.max() < 0.0004 for loss in losses(tmp_path, planted(no_fault)).values())


def test_a_synchronisation_is_named_with_its_call_and_operator(tmp_path: Path) -> None:
    signal = losses(tmp_path, planted(synchronising))["host_sync"].evidence[0].signal

    assert "cudaStreamSynchronize" in signal
    assert "aten::item" in signal


def test_kernels_of_a_quarter_of_the_device_lose_three_quarters_of_their_time_at_most(tmp_path: Path) -> None:
    found = losses(tmp_path, planted(no_fault, blocks=0.25))

    assert found["underfilled"].seconds == pytest.approx(0.015 * 0.75, rel=0.01)
    assert "upper bound" in found["underfilled"].evidence[0].source


def test_float32_products_beside_idle_tensor_cores_are_inefficient_and_bf16_ones_are_not(tmp_path: Path) -> None:
    slow = losses(tmp_path, planted(no_fault, kernel="ampere_sgemm_128x64_nn"))

    assert slow["compute_inefficient"].seconds == pytest.approx(0.015 * 0.75, rel=0.01)
    assert "ampere_sgemm_128x64_nn" in slow["compute_inefficient"].evidence[1].signal


def test_a_trace_without_a_device_says_which_classes_it_cannot_show(tmp_path: Path) -> None:
    job = Planted()
    for number in range(4):
        job.step(number, number * STEP + MS, STEP)
        job.op("aten::mm", number * STEP + MS, STEP // 2)

    assert {"launch_bound", "h2d_copy", "underfilled"} <= set(rank_losses(View(job.read(tmp_path))).not_measured)


def test_an_empty_trace_has_neither_steps_nor_losses(tmp_path: Path) -> None:
    found = rank_losses(View(Planted().read(tmp_path)))

    assert not len(found.steps)
    assert not found.losses
