"""Announces a process by its `JobStarted`, written when it begins to train: then its group and device are known."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tachoscope import guard
from tachoscope.lineage import collect
from tachoscope.process import identity
from tachoscope.process.placement import gpu_uuid, pod_uid
from tachoscope.sampling.other_process import own_locator
from tachoscope.spool.outbox import Outbox
from tachoscope.timing.procfs import start_time
from tachoscope.training import parallel_layout

FROM_LINEAGE = ("code_reference", "data_snapshot", "hyperparameters_hash")


def write(outbox: Outbox, *, rendezvous_seconds: float, parents: Iterable[str]) -> None:
    """Write `JobStarted`, and let the outbox write what else it has.

    Args:
        rendezvous_seconds: of forming the process group. parents: checkpoints that the process loaded.
    """
    outbox.rank, outbox.local_rank, world = ranks()
    outbox.start(
        world_size=world,
        rendezvous_seconds=rendezvous_seconds,
        **parallel_layout.of_process(os.environ, outbox.rank, world),
        parents=[*dict.fromkeys([*parents, *collect.described_parents()])],
        stack_locator=own_locator(),
        **of_process(sys.modules.get("torch")),
    )


def of_process(torch: ModuleType | None) -> dict[str, Any]:
    """Return the fields of `JobStarted` that this process, its environment and its device tell."""
    lineage = _lineage()
    return {
        "pid": os.getpid(),
        "process_time": start_time(),
        **device_of(torch),
        "pod_uid": pod_uid(os.environ),
        "code_reference": os.path.basename(sys.argv[0]) if sys.argv else "",
        "torch_version": str(getattr(torch, "__version__", "")),
        "cpu_threads": torch.get_num_threads() if torch is not None else 0,
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "lineage": lineage,
        **{name: lineage[name] for name in FROM_LINEAGE if lineage.get(name)},
    }


def device_of(torch: ModuleType | None) -> dict[str, str]:
    """Return what accelerator the process uses, by the fields of `JobStarted`."""
    if torch is None or not torch.cuda.is_initialized():
        return {"device": "cpu"}
    return {
        "device": "cuda",
        "device_name": torch.cuda.get_device_name(torch.cuda.current_device()),
        "gpu_uuid": gpu_uuid(torch, os.environ),
    }


def _lineage() -> dict[str, str]:
    try:
        return collect.of_this_process()
    except Exception as error:  # what the run is made of is worth knowing, but not the run
        if guard.is_of_the_job(error):
            raise
        return {}


def ranks() -> tuple[int, int, int]:
    """Return rank, local rank and world size, from the process group or else from what the launcher says."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world = int(distributed.get_rank()), int(distributed.get_world_size())
        return rank, identity.local_rank(os.environ, rank), world
    return identity.place(os.environ) or (0, 0, 1)
