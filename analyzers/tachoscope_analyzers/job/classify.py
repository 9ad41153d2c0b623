"""The order in which causes are looked for in the steps of a job. Each takes its seconds, and the next gets what is left.

Was a rank stuck; are the numbers right; are ranks stages of a pipeline; is a rank late: by memory, its data, its device or
by itself; did it wait or transfer; what of the input, the checkpoints and the host. What a job does again is judged over its life.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.classify import async_staleness as staleness
from tachoscope_analyzers.classify import checkpoint_stall as checkpoints
from tachoscope_analyzers.classify import (
    data_imbalance,
    hang,
    host,
    host_memory,
    input_pipeline,
    outside_torch,
    recompilation,
    stragglers,
)
from tachoscope_analyzers.classify import silent_corruption as integrity
from tachoscope_analyzers.classify.communication import exposed as communication
from tachoscope_analyzers.classify.communication import slow_link
from tachoscope_analyzers.classify.gpu import losses as gpu_losses
from tachoscope_analyzers.classify.pipeline import attribution
from tachoscope_analyzers.classify.pipeline import candidates as pipeline_candidates
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.job import coverage, unmeasured_waiting
from tachoscope_analyzers.job.advice import advised
from tachoscope_analyzers.ledger import losses
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.memory import verdict as memory_verdict
from tachoscope_analyzers.records import idle_gaps
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.report.memory import MemoryReport
from tachoscope_core.report.report import NotMeasured

_OF_RANKS = {"compute_straggler": ("compute", "other"), "input_straggler": ("data_wait",)}
"""Classes of ranks that are late, with the causes that fixing them would take away."""


@dataclass(frozen=True, slots=True)
class Classification:
    """Steps as they are to be shown, the seconds that they lost, the causes of these, what could not be told, and in which steps
    a rank hung, shape (K,). memory: what was judged of it; None: not known.
    """

    steps: Steps
    losses: Losses
    candidates: list[Candidate]
    not_measured: list[NotMeasured]
    hung: npt.NDArray[np.bool_]
    memory: MemoryReport | None = None


def decide(job: JobRecords, steps: Steps) -> Classification:
    """Return the causes of what the steps lost, with their seconds."""
    job = idle_gaps.without_gap_heartbeats(job, steps.writers, steps.begins, steps.gap_seconds)
    numbers, updates = integrity.classify(job, steps), staleness.classify(job, steps)
    held = memory_verdict.judge(job, steps.attempt, len(steps.numbers), steps.window_end)
    flows = slow_link.flows(job, steps)
    stages = attribution.find(job, steps)
    if stages:
        steps = attribution.with_gaps_as_compute(steps)
        split: Losses = attribution.attribute(steps, stages, slow_link.moving(job, steps, flows))
    else:
        split = unmeasured_waiting.attribute(steps)
    whole = split
    stuck = hang.subtract_hangs(steps, split)
    split = stuck.losses

    late = stragglers.late_by_computing(steps, split)
    memory = host_memory.classify(job, steps, late)
    uneven = data_imbalance.classify(steps, np.maximum(late - memory.seconds, 0.0), split)
    by_themselves = stragglers.candidates(job, steps, split, memory.seconds + uneven.seconds)
    if stages is None and attribution.is_declared(steps):
        by_themselves = [attribution.without_blamed_rank(one) for one in by_themselves]
    gpus = gpu_losses.classify(job, steps, split, by_themselves)
    moving, judged = communication.candidates(job, steps, split, flows)

    found = [
        *held.candidates,
        *stuck.candidates,
        *numbers.candidates,
        *updates.candidates,
        *pipeline_candidates.candidates(steps, split),
    ]
    found += [*memory.candidates, *uneven.candidates, *gpus.candidates, *moving]
    found += input_pipeline.candidates(job, steps, split)
    found += checkpoints.candidates(job, steps, split)
    compiled = recompilation.classify(job, steps, split)
    found += compiled.candidates
    found += host.candidates(job, steps, split, memory.seconds)

    measured = {
        "hang": len(steps.ranks) == steps.world_size > 1 and not steps.waiting_unmeasured,
        "silent_corruption": numbers.measured,
        "async_staleness": updates.measured,
        "recompilation": compiled.measured,
        "host_memory": memory.measured,
        memory_verdict.SLUG: held.report is not None,
        "data_imbalance": uneven.measured,
        **dict.fromkeys(("pipeline_bubble", "stage_imbalance"), bool(stages) or attribution.has_pipeline_traffic(job, steps)),
    }
    missing = coverage.not_measured(steps, gpus.missing, judged | {slug for slug, known in measured.items() if known})
    return Classification(
        steps, whole, _with_advice(found, job, steps, whole, {row.class_ for row in missing}), missing, stuck.steps, held.report
    )


def _with_advice(found: list[Candidate], job: JobRecords, steps: Steps, split: Losses, unmeasured: set[str]) -> list[Candidate]:
    """Return the candidates with speed-up and advice, without unmeasured look-alikes."""
    found = [_without_unmeasured_alternative(one, unmeasured) for one in found]
    found = unmeasured_waiting.without_unmeasured(found, steps, split)
    return outside_torch.without_unmeasured(advised([_with_speedup(one, steps, split) for one in found], job, steps, split), steps)


def _without_unmeasured_alternative(candidate: Candidate, unmeasured: set[str]) -> Candidate:
    """Return the candidate without a look-alike that was not measured."""
    if candidate.alternative is not None and candidate.alternative[0] in unmeasured:
        return replace(candidate, alternative=None)
    return candidate


def _with_speedup(candidate: Candidate, steps: Steps, split: Losses) -> Candidate:
    """Return the candidate with the speed-up of fixing its ranks alone: then the next latest rank sets the step."""
    causes = _OF_RANKS.get(candidate.slug)
    if causes is None or candidate.ranks == "all" or candidate.speedup is not None:
        return candidate
    saved = np.minimum(losses.saved(steps, causes, candidate.ranks), candidate.seconds).mean()
    return replace(candidate, speedup=split.mean_step / max(split.mean_step - float(saved), 1e-9))
