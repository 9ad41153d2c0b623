"""Matrix multiply, and copies of memory, with the torch that the job will use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tachoscope_core.storage.preflights import Measurement
from tachoscope_preflight.hardware import cpu
from tachoscope_preflight.repeat import Effort, failed, measured, rates

MATMUL = "matmul_flops_per_second"
MEMORY = "memory_copy_bytes_per_second"
TO_DEVICE = "host_to_device_bytes_per_second"
FROM_DEVICE = "device_to_host_bytes_per_second"
_CPU_SIZE, _GPU_SIZE = 1024, 8192
_HOST_BYTES, _DEVICE_BYTES = 128 << 20, 256 << 20
_ROUNDING = 0.01
"""Of the largest element: products of one matrix differ by less, from one time to the next."""


def measure(torch: Any, effort: Effort) -> Iterator[Measurement]:
    """Yield the rates of each accelerator, or of the CPU's cores where there is none, and of the host's memory."""
    devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    each = Effort(
        effort.seconds / max(len(devices), 1), effort.repetitions
    )  # no CPU quota pauses a GPU: its repetitions may be short
    for device in devices or [""]:
        yield _matmul(torch, device, each)
    yield _memory(torch, effort)
    for device in devices:
        yield from _copies(torch, device, each)


def _matmul(torch: Any, device: str, effort: Effort) -> Measurement:
    like = _software(torch, torch.cuda.get_device_name(device)) if device else _software(torch, cpu())
    size = _GPU_SIZE if device else _CPU_SIZE
    try:
        dtype = (torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16) if device else torch.float32
        generator = torch.Generator(device=device or "cpu").manual_seed(7)
        left, right = (torch.randn(size, size, generator=generator, device=device or "cpu", dtype=dtype) for _ in range(2))
        out = torch.mm(left, right)
        first = out.clone()
        found = rates(lambda: torch.mm(left, right, out=out), 2.0 * size**3, effort, _waiter(torch, device))
        if not _alike(torch, first, out):
            return failed(MATMUL, "one product had two results", device=device, broken=True)
    except RuntimeError as error:  # of CUDA: a lost or faulty GPU; out of memory where others use it
        return failed(MATMUL, _first_line(error), device=device, broken=not isinstance(error, torch.cuda.OutOfMemoryError))
    return measured(MATMUL, found, device=device, comparable_with=like)


def _alike(torch: Any, first: Any, second: Any) -> bool:
    largest = first.abs().max()
    return bool(torch.isfinite(largest)) and bool(((first - second).abs() <= _ROUNDING * largest).all())


def _memory(torch: Any, effort: Effort) -> Measurement:
    source = torch.ones(_HOST_BYTES, dtype=torch.uint8)
    target = torch.zeros_like(source)
    found = rates(lambda: target.copy_(source), float(_HOST_BYTES), effort)
    return measured(MEMORY, found, comparable_with=_software(torch, cpu()))


def _copies(torch: Any, device: str, effort: Effort) -> Iterator[Measurement]:
    try:
        like = f"{torch.cuda.get_device_name(device)}, {cpu()}"
        host = torch.ones(_DEVICE_BYTES, dtype=torch.uint8, pin_memory=True)
        there = torch.empty(_DEVICE_BYTES, dtype=torch.uint8, device=device)
        for name, target, source in ((TO_DEVICE, there, host), (FROM_DEVICE, host, there)):
            call = _copier(target, source)
            yield measured(
                name, rates(call, float(_DEVICE_BYTES), effort, _waiter(torch, device)), device=device, comparable_with=like
            )
    except RuntimeError as error:
        yield failed(TO_DEVICE, _first_line(error), device=device, broken=not isinstance(error, torch.cuda.OutOfMemoryError))


def _copier(target: Any, source: Any) -> Any:
    return lambda: target.copy_(source, non_blocking=True)


def _waiter(torch: Any, device: str) -> Any:
    return (lambda: torch.cuda.synchronize(device)) if device else (lambda: None)


def _software(torch: Any, hardware: str) -> str:
    return f"{hardware}, {torch.get_num_threads()} threads, torch {'.'.join(torch.__version__.split('.')[:2])}"


def _first_line(error: RuntimeError) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
