"""Losses of one rank: each fault planted in every step comes back as its class, with its seconds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from planting import Planted
from tachoscope_analyzers.trace.device_time.device_use import use_note
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.losses.by_rank import Loss, rank_losses

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
    return {loss.slug: loss for loss in rank_losses(TraceView(job.read(tmp_path))).losses}


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

    assert {"launch_bound", "h2d_copy", "underfilled"} <= set(rank_losses(TraceView(job.read(tmp_path))).not_measured)


def on_the_host(pause: Callable[[Planted, int], None], *, stack: bool = False) -> Planted:
    """Eight steps of 20 ms: operators for 10 ms, then something else."""
    job = Planted()
    for number in range(8):
        begin = 1_000 * MS + number * STEP
        job.step(number, begin, STEP)
        job.op("aten::mm", begin, 10 * MS)
        if stack:
            job.add("python_function", "train.py(15): train", begin, STEP - 1_000)
            job.add("python_function", "<built-in function sleep>", begin + 10 * MS, STEP // 2 - 2_000)
        pause(job, begin + 10 * MS)
    return job


def test_silence_of_a_job_without_a_device_is_a_pause_that_may_as_well_be_a_checkpoint(tmp_path: Path) -> None:
    found = losses(tmp_path, on_the_host(lambda _job, _begin: None))

    assert found["host_pause"].seconds == pytest.approx(0.010)
    assert found["host_pause"].alternative == "checkpoint_stall"
    assert "with_stack=True" in found["host_pause"].evidence[0].source
    assert "unknown" not in found


def test_with_python_frames_a_pause_has_its_line_and_no_look_alike(tmp_path: Path) -> None:
    found = losses(tmp_path, on_the_host(lambda _job, _begin: None, stack=True))["host_pause"]

    assert found.evidence[0].signal.endswith(", in <built-in function sleep>, at train.py(15): train")
    assert found.evidence[0].value == pytest.approx(0.010, rel=0.01)
    assert found.alternative == ""


def test_garbage_collection_by_name_is_a_pause_however_short(tmp_path: Path) -> None:
    def collecting(job: Planted, begin: int) -> None:
        for place in range(10):
            job.annotation("gc.collect", begin + place * MS, 600_000)

    found = losses(tmp_path, on_the_host(collecting))

    assert found["host_pause"].seconds == pytest.approx(0.006)
    assert found["host_pause"].evidence[0].signal == "garbage collection"
    assert found["unknown"].seconds == pytest.approx(0.004)


def test_time_between_short_operators_is_a_loss_without_a_cause(tmp_path: Path) -> None:
    def chattering(job: Planted, begin: int) -> None:
        for place in range(20):
            job.op("aten::add", begin + place * MS // 2, 100_000)

    found = losses(tmp_path, on_the_host(chattering))

    assert found["unknown"].seconds == pytest.approx(0.008)
    assert "host_pause" not in found


def test_a_trace_of_something_else_has_one_loss_and_no_pause(tmp_path: Path) -> None:
    job = Planted()
    for number in range(50):
        job.add("toplevel", "RunTask", 1_000 * MS + number * 2 * MS, 100_000)

    found = rank_losses(TraceView(job.read(tmp_path)))

    assert [loss.slug for loss in found.losses] == ["unknown"]
    assert found.losses[0].seconds.sum() == pytest.approx(found.steps["duration_ns"].sum() / 1e9)
    assert found.blind


def test_a_queued_kernel_that_waits_is_told_with_the_call_that_the_host_was_in(tmp_path: Path) -> None:
    def stuck(job: Planted, begin: int) -> None:
        job.kernel("waiting", begin + 5 * MS - 100_000, 50_000, launched=begin + 1_000, **{"blocks per SM": 4.0})
        job.call("hipMemcpyWithStream", begin + 10_000, 4 * MS)

    found = losses(tmp_path, planted(stuck))["unknown"]

    assert found.seconds[1:] == pytest.approx(0.0049, abs=0.0001)
    assert "launched already" in found.evidence[1].signal
    assert "before waiting" in found.evidence[2].signal
    assert "hipMemcpyWithStream for 81." in found.evidence[2].signal


def test_evidence_of_idle_time_is_in_seconds_of_a_step_and_never_without_words(tmp_path: Path) -> None:
    def silent(job: Planted, begin: int) -> None:
        del job, begin

    found = losses(tmp_path, planted(silent))["host_pause"]

    assert [row.signal for row in found.evidence] == ["device idle: the host in no operator or call"]
    assert found.evidence[0].value == pytest.approx(float(found.seconds.mean()))
    assert found.evidence[0].source == "8 gaps of the device"


def test_a_loaders_look_alike_falls_behind_by_what_is_not_computing(tmp_path: Path) -> None:
    def half(job: Planted, begin: int) -> None:
        job.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, 5 * MS - 30_000)
        job.op("aten::stack", begin + 10_000, MS)

    found = losses(tmp_path, planted(half))["input_workers"]

    assert (found.alternative, found.margin) == ("input_preprocess", pytest.approx(1 - 2 / 4.97, abs=0.01))


def test_how_busy_the_device_was_is_told_to_the_hundredth(tmp_path: Path) -> None:
    use = rank_losses(TraceView(planted(saving).read(tmp_path))).use

    assert use is not None
    assert use.idle == pytest.approx(7 * 5 / 155)  # from the first kernel to the last
    (note,) = use_note({0: use})
    assert note.what == "device 0: busy 77.42 %, idle 22.58 %"


def test_an_empty_trace_has_neither_steps_nor_losses(tmp_path: Path) -> None:
    found = rank_losses(TraceView(Planted().read(tmp_path)))

    assert not len(found.steps)
    assert not found.losses


@pytest.mark.parametrize(("seconds", "slug"), [(2.0, "unknown"), (0.02, "memory_thrash")])
def test_an_allocation_of_a_single_step_that_takes_as_long_as_the_first_use_of_a_device_is_no_thrashing(
    tmp_path: Path, seconds: float, slug: str
) -> None:
    job, wait = Planted(), int(seconds * 1e9)
    job.kernel(GEMM, 0, MS, launched=-1_000)
    job.op("aten::conv2d", MS, wait)
    job.call("cudaFree", MS + 5_000, wait - 10_000)
    job.kernel(GEMM, MS + wait, 10 * MS, launched=MS + wait - 3_000)

    found = losses(tmp_path, job)

    assert found[slug].seconds.sum() == pytest.approx(seconds, rel=0.05)
    assert any("cudaFree" in one.signal for one in found[slug].evidence)
