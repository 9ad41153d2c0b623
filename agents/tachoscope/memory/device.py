"""Memory of the accelerator, as PyTorch's caching allocator counts it, and what it held when it had none left.

`$TACHOSCOPE_MEMORY_HISTORY=1` switches on the allocator's history, a ring of bounded size: then the record says at which lines the
largest live blocks were allocated, and what lies free in which segments. Without it nothing but counts is known.
https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tachoscope.memory.allocator_snapshot import free_segments, largest_blocks
from tachoscope.sampling.stacks import user_place
from tachoscope_core.records import memory as memory_records
from tachoscope_core.records import records

SWITCH = "TACHOSCOPE_MEMORY_HISTORY"
MOST_ENTRIES = 100_000
"""Of the ring: each costs some hundred bytes of host memory."""
_MOST_FRAMES = 48


class DeviceWatch:
    """Watches the allocator of this process once it uses an accelerator. No method raises.

    Args:
        write: writes a record of a kind with fields. steps: the steps that ended so far.
    """

    def __init__(self, write: Callable[..., None], steps: Callable[[], int], environ: Mapping[str, str] = os.environ) -> None:
        self._write = write
        self._steps = steps
        self._keeps_history = environ.get(SWITCH, "").strip() not in ("", "0")
        self._attached = False
        self._device = -1

    def memory(self) -> records.DeviceMemory | None:
        """Return what the allocator holds on the device that this process uses; None where it uses none.

        The device is found by what is reserved: the current device of this thread need not be that of the training. The driver is
        not asked: that would make a context, which costs hundreds of megabytes.
        """
        cuda = _cuda()
        if cuda is None:
            return None
        with contextlib.suppress(Exception):  # of a driver or a version that does not say
            if not self._attached:
                self._attached = True
                self._attach(cuda)
            if self._device < 0:
                reserved = {device: _allocated(cuda, device).reserved_bytes for device in range(cuda.device_count())}
                self._device = max((device for device, size in reserved.items() if size), key=reserved.__getitem__, default=-1)
            return _allocated(cuda, self._device) if self._device >= 0 else None
        return None

    def _attach(self, cuda: Any) -> None:
        if self._keeps_history:
            cuda.memory._record_memory_history(max_entries=MOST_ENTRIES, stacks="python")
        sys.modules["torch"]._C._cuda_attach_out_of_memory_observer(self.out_of_memory)

    def _snapshot(self, cuda: Any, device: int) -> dict[str, Any]:
        if not self._keeps_history:
            return {}
        with contextlib.suppress(Exception):  # what was asked for is written without it
            snapshot = cuda.memory._snapshot()
            segments, count = free_segments(snapshot, device)
            return {"largest_blocks": largest_blocks(snapshot, device), "free_segments": segments, "free_segment_count": count}
        return {}

    def out_of_memory(self, device: int, requested_bytes: int, total_bytes: int, free_bytes: int) -> None:
        """Take the allocator's word that it has no memory; it calls this in the thread that asked, and raises afterwards."""
        with contextlib.suppress(Exception):
            cuda = _cuda()
            self._write(
                records.OutOfMemory,
                place="device",
                victim="rank",
                step=self._steps(),
                limit_of=str(cuda.get_device_name(device)),
                limit_bytes=int(total_bytes),
                requested_bytes=int(requested_bytes),
                device=_allocated(cuda, device, int(free_bytes)),
                location=user_place(_frames(sys._getframe(1))),
                **self._snapshot(cuda, device),
                sources=[memory_records.ALLOCATOR],
                killed_time=time.time(),
            )


def _allocated(cuda: Any, device: int, free_bytes: int = 0) -> records.DeviceMemory:
    stats = cuda.memory_stats_as_nested_dict(device)
    return records.DeviceMemory(
        allocated_bytes=stats["allocated_bytes"]["all"]["current"],
        reserved_bytes=stats["reserved_bytes"]["all"]["current"],
        free_bytes=free_bytes,
        total_bytes=int(cuda.get_device_properties(device).total_memory),
    )


def _cuda() -> Any:
    """Return `torch.cuda`, if this process has made a context of it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    with contextlib.suppress(Exception):
        if cuda is not None and cuda.is_initialized():
            return cuda
    return None


def _frames(frame: Any) -> Iterator[tuple[str, int]]:
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
