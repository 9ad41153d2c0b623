"""What a rank's process does: it takes its place, then trains."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import torch
from benchmarks.lab import processes
from benchmarks.lab.site import Measured, Site
from benchmarks.lab.spec import Spec
from benchmarks.lab.workloads import data_parallel, exchange, parameter_server, pipeline

WORKLOADS: Mapping[str, Callable[[Site], None]] = {
    "ddp": data_parallel.train,
    "single": data_parallel.train,
    "replicas": data_parallel.train,
    "pipeline": pipeline.train,
    "exchange": exchange.train,
    "ps": parameter_server.train,
}


def main(
    spec: Spec,
    rank: int,
    attempt: int,
    job: str,
    folder: Path,
    environ: Mapping[str, str],
    progress: Any,
    namespaces: tuple[int, ...],
) -> None:
    """Be one rank of an attempt of a run, with all that it says in a log; called in a process of its own."""
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    os.environ.update(environ)
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": spec.world_size, "LOCAL_WORLD_SIZE": spec.world_size}
    os.environ.update({name: str(value) for name, value in places.items()} | {"TORCHELASTIC_RESTART_COUNT": str(attempt)})
    if namespaces:
        processes.enter_namespace(namespaces[rank if len(namespaces) > 1 else 0])
    sys.argv = [f"{spec.workload}.py"]
    torch.set_num_threads(1)
    gc.collect()  # the first collection in a forked process copies what it shares with its parent: not in a step
    site = Site(
        spec=spec,
        rank=rank,
        folder=folder,
        job=job,
        attempt=attempt,
        dice=Random(f"{spec.seed}-{rank}"),
        measured=Measured(spec.steps),
        progress=progress,
        namespaces=namespaces,
    )
    WORKLOADS[spec.workload](site)
