"""When the gradient exchange of DDP begins and ends, by a communication hook that does what DDP does by itself."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from benchmarks.lab.site import Measured, clock
from torch.nn.parallel import DistributedDataParallel


def note(model: DistributedDataParallel, measured: Measured) -> None:
    """Note, for each step, when the last bucket was handed over and when the last one was exchanged, in monotonic seconds.

    All ranks are on one machine, so that their clocks are the same. What lies between the latest hand-over and the latest end is
    transfer that no computing hides.
    """
    begins: list[float] = [0.0] * measured.steps
    ends: list[float] = [0.0] * measured.steps
    measured.notes["exchange_begins"], measured.notes["exchange_ends"] = begins, ends

    def exchange(state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations with classes, here they are text
        step = min(measured.step, measured.steps - 1)
        buffer = bucket.buffer().div_(dist.get_world_size())
        begins[step] = clock()
        # The group itself, not `dist.all_reduce`: DDP's own exchange does not pass through that function either.
        work = dist.group.WORLD.allreduce([buffer])

        def done(future: torch.futures.Future[Any]) -> torch.Tensor:
            ends[step] = clock()
            value = future.value()
            return value[0] if isinstance(value, list | tuple) else value

        return work.get_future().then(done)

    model.register_comm_hook(None, exchange)
