"""The engine of a job."""

from __future__ import annotations

from pathlib import Path

from tachoscope_cli.training_jobs.engine import Engine
from tachoscope_core.jobs.training_job import TrainingJob


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
