"""How busy the GPUs of each training job are while it does steps: counted from look to look, in this process's memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tachoscope_core.metrics.gpu import GPU_ACTIVE
from tachoscope_core.metrics.training import JOB_SM_ACTIVE
from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.workloads.join import Rank
from tachoscope_service.metrics.buckets import Buckets, empty_buckets
from tachoscope_service.metrics.family import Family, Histogram, Labels

_GPU_LABELS = 3
"""That the labels of a workload begin with; its job is the last but one."""


class JobActivity:
    """The observations of each job that has a GPU here which tells how active its multiprocessors are."""

    def __init__(self) -> None:
        self._looked = float("-inf")
        self._jobs: dict[str, Buckets] = {}

    def update(self, readings: Iterable[Reading], ranks: Iterable[Rank], workloads: Family, now: float) -> list[Family]:
        """Count what GPUs said since the last look, and return all that was counted; nothing where no GPU of a job told.

        A job is there at 0 from the look at which its ranks are seen on such a GPU, so that its first observations are an increase,
        and goes with its last rank.

        Args:
            ranks: those that run. workloads: who has each GPU. now: of the monotonic clock by which readings have their time.
        """
        ranks, owners = tuple(ranks), _jobs_by_gpu(workloads)
        stepping = {rank.training_job for rank in ranks if rank.stepped}
        here = {rank.training_job for rank in ranks}
        self._jobs = {job: buckets for job, buckets in self._jobs.items() if job in here}
        for reading in readings:
            active = reading.value(GPU_ACTIVE, "sm")
            if active is None:
                continue
            is_new = reading.measured_at(GPU_ACTIVE, "sm") > self._looked
            for job in owners.get(reading.gpu.labels, ()):
                buckets = self._jobs.setdefault(job, empty_buckets(JOB_SM_ACTIVE.buckets))
                if is_new and job in stepping:
                    buckets.observe(active, JOB_SM_ACTIVE.buckets)
        self._looked = now
        points = [((job,), Histogram(tuple(buckets.counts), buckets.sum)) for job, buckets in self._jobs.items()]
        return [Family(JOB_SM_ACTIVE, points)] if points else []


def _jobs_by_gpu(workloads: Family) -> Mapping[Labels, set[str]]:
    """Return the training jobs of each GPU, by its labels; with very many workloads only the named ones."""
    jobs: dict[Labels, set[str]] = defaultdict(set)
    for labels, _ in workloads.points:
        if job := labels[-2]:
            jobs[labels[:_GPU_LABELS]].add(job)
    return jobs
