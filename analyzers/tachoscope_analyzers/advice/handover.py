"""What it costs to hand a batch over from a worker process to the training process.

A worker copies each tensor of a batch into shared memory and sends its descriptor. The training thread receives it, maps it and
faults its pages in as it reads. So a batch costs the training thread a constant, plus bytes / rate, and no number of workers
changes that. Measured by `python -m benchmarks.loader_handover`.
"""

from __future__ import annotations

from tachoscope_analyzers.data.thresholds import threshold


def handover_seconds(batch_bytes: float, batches: float = 1.0) -> float:
    """Return the seconds that the training thread spends to take so many batches of that size from workers."""
    return batches * (threshold("handover_seconds") + batch_bytes / threshold("handover_bytes_per_second"))
