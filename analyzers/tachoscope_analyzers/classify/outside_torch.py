"""Loops of which torch computes nothing, such as those of JAX or NumPy: they say where a step ends, by `tachoscope.step()`.

Of these only the whole step is measured, and what they mark with `tachoscope.phase`. What was not marked is not measured: it is not
a loss without a cause, and no advice on loaders of torch helps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tachoscope_analyzers.classify.input_pipeline import LOADER_WORKERS
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.records.life_steps import LifeSteps
from tachoscope_analyzers.records.step_table import DEVICE_COLUMNS
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.records.records import COMPUTING_PHASES

_NEEDS_COMPUTING = ("compute_bound", "compute_straggler", "data_imbalance", "cpu_contention", "host_pause", "unknown")
_INPUT = ("input_fetch", "input_preprocess", "input_workers", "input_straggler")
_ACTION = (
    "prepare the input of the next step while this one computes, in a thread or a process beside the loop; the evidence names the "
    "line that it waits at"
)


def torch_trains(steps: Steps) -> bool:
    """Return whether gradients were computed with torch in any step."""
    return steps.device != "cpu" or bool(steps.backward_calls.any())


def computing_measured(steps: Steps) -> bool:
    """Return whether it is known how long any step computed; it may be no time, where all that was marked waited for a core."""
    return torch_trains(steps) or any(seconds.any() for seconds in (steps.own["compute"], steps.forward, steps.optimizer))


def goodput_measured(steps: LifeSteps) -> bool:
    """Return whether it is known how long any step of the job computed, in a job that has steps."""
    computing = [f"{phase}_seconds" for phase in COMPUTING_PHASES]
    return not steps.counts or not steps.parts.isdisjoint((*computing, *DEVICE_COLUMNS))


def missing(steps: Steps) -> dict[str, str]:
    """Return the classes that were not measured since torch does not compute here, with the signal that is missing."""
    if torch_trains(steps):
        return {}
    found = {} if computing_measured(steps) else dict.fromkeys(_NEEDS_COMPUTING, "time within tachoscope.phase('forward')")
    return found | ({} if steps.loader_seen else dict.fromkeys(_INPUT, "time within tachoscope.phase('data_wait')"))


def without_unmeasured(candidates: Iterable[Candidate], steps: Steps) -> list[Candidate]:
    """Return the candidates without time that is only not measured, and without advice on torch's loaders."""
    if torch_trains(steps):
        return list(candidates)
    measured = computing_measured(steps)
    told = [_without_loader(one) for one in candidates]
    return [one for one in told if measured or one.slug not in _NEEDS_COMPUTING or one.action == _ACTION]


def _without_loader(candidate: Candidate) -> Candidate:
    """Return the candidate without advice on torch's loaders, which this job does not use."""
    rows = [row for row in candidate.evidence if row.signal != LOADER_WORKERS]
    of_input = len(rows) < len(candidate.evidence) or candidate.slug in _INPUT
    return replace(candidate, evidence=rows, action=_ACTION) if of_input else candidate
