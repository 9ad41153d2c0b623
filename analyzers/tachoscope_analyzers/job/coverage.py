"""What could be neither found nor ruled out, and the signal that is missing: never silently taken for well."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tachoscope_analyzers.classify import data_imbalance, outside_torch
from tachoscope_analyzers.classify.gpu import losses as gpu_losses
from tachoscope_analyzers.findings.missing_signals import missing_signals
from tachoscope_analyzers.job import unmeasured_waiting
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.report.report import NotMeasured
from tachoscope_core.report.taxonomy import BY_SLUG

_INPUT = ("input_fetch", "input_preprocess", "input_workers", "input_straggler")
_OF_ALL_RANKS = ("input_straggler", "compute_straggler", "comm_exposed")
_BETWEEN_RANKS = ("pipeline_bubble", "stage_imbalance", "network_degraded", "slow_link", "data_imbalance")
"""A job of one rank cannot have them, so of these nothing is missing."""


def not_measured(steps: Steps, gpu_signals: Mapping[str, str], judged: Collection[str]) -> list[NotMeasured]:
    """Return the classes that step records, and what came with them, do not show.

    Args:
        gpu_signals: what is missing of the GPUs, by class. judged: classes whose signals this job has beside its steps.
    """
    missing = {slug: signal for slug, signal in missing_signals().items() if slug not in judged}
    if "data_imbalance" not in judged:
        missing["data_imbalance"] = data_imbalance.MISSING
    if steps.device != "cpu":
        missing.pop("h2d_copy")
        missing = {slug: signal for slug, signal in missing.items() if slug not in gpu_losses.CLASSES} | dict(gpu_signals)
        missing["comm_exposed"] = "transfer time apart from waiting (needs a profiler trace or NCCL's inspector)"
        missing["cpu_contention"] = "waiting for a core is measured for training on CPU only"
    elif not steps.cpu_wait_measured:
        missing["cpu_contention"] = "/proc/thread-self/schedstat (this kernel does not keep it)"
    if not steps.loader_seen:
        missing |= dict.fromkeys(_INPUT, "input through a DataLoader or tachoscope.phase('data_wait')")
    missing |= outside_torch.missing(steps) | unmeasured_waiting.missing(steps)
    absent = sorted(set(range(steps.world_size)) - set(steps.ranks))
    if absent:
        ranks = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
        of_absent = (*_OF_ALL_RANKS, *(["gpu_throttle"] if steps.device != "cpu" else []))
        missing |= dict.fromkeys(of_absent, f"records of rank {ranks}")
    impossible = _BETWEEN_RANKS if steps.world_size == 1 else ()
    return [NotMeasured(class_=slug, missing=missing[slug]) for slug in BY_SLUG if slug in missing and slug not in impossible]
