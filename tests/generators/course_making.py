"""Plants jobs of several ranks whose steps change from a known step on, for a known reason, on known ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from making import job

BASE = {"data_wait": 0.001, "forward": 0.030, "backward": 0.062, "optimizer": 0.004, "other": 0.001}
"""98 ms of own time; with the transfer a step takes 100 ms."""
TRANSFER = 0.002
SEGMENT = "00000000-0000-4000-8000-000000000000-000000.jsonl"

Extra = Callable[[int, int], dict[str, float]]
"""Returns what a step (from 1) of a rank takes in addition, in seconds by phase."""


def nothing(step: int, rank: int) -> dict[str, float]:
    return {}


def lines(
    extra: Extra = nothing, *, steps: int = 300, ranks: int = 4, noise: float = 0.02, seed: int = 0, name: str = "planted"
) -> bytes:
    """Return the records of a job, whose ranks wait for each other in backward as DDP's do."""
    generator = np.random.default_rng(seed)
    rows, blocked = [], []
    for step in range(1, steps + 1):
        own = []
        for rank in range(ranks):
            phases = {phase: seconds * max(generator.normal(1, noise), 0.1) for phase, seconds in BASE.items()}
            for phase, seconds in extra(step, rank).items():
                phases[phase] = phases.get(phase, 0.0) + seconds
            own.append(phases)
        total = [sum(phases.values()) for phases in own]
        waits = [max(total) - mine + TRANSFER for mine in total] if ranks > 1 else [0.0]
        rows.append([phases | {"backward": phases["backward"] + wait} for phases, wait in zip(own, waits, strict=True)])
        blocked.append(waits)
    return job(rows, blocked=blocked, other_cpu=0.01).replace(b'"job":"planted"', f'"job":"{name}"'.encode())


def planted(folder: Path, extra: Extra = nothing, **options: Any) -> Path:
    """Write the records of such a job, see `lines`, as a spool into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SEGMENT).write_bytes(lines(extra, **options))
    return folder


def late(rank: int, first: int, last: int, seconds: float = 0.015, phase: str = "data_wait") -> Extra:
    """Return that one rank takes longer in the steps from first to last."""
    return lambda step, one: {phase: seconds} if one == rank and first <= step <= last else {}


def slower(first: int, seconds: float = 0.015, phase: str = "forward") -> Extra:
    """Return that all ranks take longer from a step on."""
    return lambda step, _: {phase: seconds} if step >= first else {}
