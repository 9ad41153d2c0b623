"""Compares the checkpoint interval of a specification with the best one, by the saves and failures of an earlier job."""

from __future__ import annotations

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.checkpoint_plan import MOST_FACTOR
from tachoscope_core.jobs.training_job import TrainingJob
from tachoscope_core.storage.store import Store


def advice(store: Store, job: TrainingJob) -> str:
    """Return what is to be said of the interval; empty: the job names none."""
    if not job.checkpoint_seconds:
        return ""
    like = job.checkpoint_like or job.name
    what = f"the checkpoint interval of {job.name}"
    try:
        from tachoscope_analyzers.checkpoint_policy.cost_model import best_interval, useful_ratio
        from tachoscope_analyzers.job.advice_inputs import of_checkpoints
        from tachoscope_analyzers.life.report import analyze_life
        from tachoscope_analyzers.records.life_records import with_life
        from tachoscope_show.text.units import duration

        life = with_life(store, like, analyze_life).life
    except ImportError:
        return f"{what} was not compared with the best one: pip install 'tachoscope[analyze]'"
    except TachoscopeError as error:
        return f"{what} was not compared with the best one: {str(error).splitlines()[0]}"
    measured = of_checkpoints(life, 0.0) if life is not None else None
    if measured is None:
        return f"{what} was not compared with the best one: job {like!r} saved no checkpoint"
    between = measured.rate.cautious_seconds
    best = best_interval(measured.saving, between)
    told = f"{what} is {duration(job.checkpoint_seconds)}; by the saves and failures of {like} {duration(best)} would be best"
    if best / MOST_FACTOR <= job.checkpoint_seconds <= best * MOST_FACTOR:
        return told
    lost = useful_ratio(measured.saving, best, between) - useful_ratio(measured.saving, job.checkpoint_seconds, between)
    return f"warning: {told}: {100 * lost:.1f} % of the time less is useful"
