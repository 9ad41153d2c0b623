"""The engine of a job."""

from __future__ import annotations

from pathlib import Path

from tachoscope_cli.training_jobs.engine import Engine
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import TrainingJob
from tachoscope_core.storage.store import Store


def engine_of(job: TrainingJob, directory: Path) -> Engine:
    """Return the engine that runs a job. directory: of this user on this machine.

    Raises:
        TachoscopeError: it cannot be asked from here.
    """
    if job.engine == "slurm":
        from tachoscope_cli.training_jobs.slurm import SlurmEngine

        return SlurmEngine()
    if job.kubernetes:
        from tachoscope_cli.training_jobs.kubernetes import KubernetesEngine

        return KubernetesEngine(job.kubernetes)
    if job.ray:
        from tachoscope_cli.training_jobs.ray_jobs import RayEngine

        return RayEngine(job.ray)
    from tachoscope_cli.training_jobs.local import LocalEngine

    return LocalEngine(directory)


def check_store(job: TrainingJob, store: Store) -> None:
    """Refuse a store that the pods of a job cannot reach.

    Raises:
        TachoscopeError: it is a directory outside of the job's volumes.
    """
    if job.kubernetes and store.local and not any(Path(store.root).is_relative_to(path) for path in job.kubernetes.volumes):
        raise TachoscopeError(
            f"pods of {job.name} have no directory {store.root}, which is the store",
            fix="use a store of objects (s3://...), or mount it at this path: kubernetes.volumes",
        )
