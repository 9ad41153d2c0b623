"""All ways of causing a bottleneck, listed one after the other; nothing registers itself."""

from __future__ import annotations

from benchmarks.lab.faults import communication, compiling, compute, host, input, lifecycle, memory, numerics, pipelines  # noqa: A004
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.site import Hooks, Site
from benchmarks.lab.spec import Planned

CAUSES: tuple[Cause, ...] = (
    *input.CAUSES,
    *compute.CAUSES,
    *host.CAUSES,
    *memory.CAUSES,
    *compiling.CAUSES,
    *communication.CAUSES,
    *pipelines.CAUSES,
    *numerics.CAUSES,
    *lifecycle.CAUSES,
)
BY_NAME = {(cause.slug, cause.name): cause for cause in (*CAUSES, *input.LOOKALIKE_CAUSES, *compiling.LOOKALIKE_CAUSES)}
SLUGS = tuple(dict.fromkeys(cause.slug for cause in CAUSES))


def cause_of(planned: Planned) -> Cause:
    """Return how a planned fault is caused."""
    return BY_NAME[planned.slug, planned.cause]


def of(site: Site, slug: str) -> Planned | None:
    """Return the planned fault of a class, if the run has one."""
    return next((planned for planned in site.spec.faults if planned.slug == slug), None)


def armed(site: Site) -> list[Hooks]:
    """Arm the run's faults on this rank, in their order: every rank does so at the same moment, some measure together."""
    hooks = [cause_of(planned).arm(site, planned) for planned in site.spec.faults]
    if site.spec.workload == "replicas":
        hooks.append(numerics.watched_integrity(site))
    if "rate_spike_step" in site.spec.shape:
        hooks.append(numerics.rate_spike(int(site.spec.shape["rate_spike_step"]), float(site.spec.shape["rate_spike_factor"])))
    if "cache_ratio" in site.spec.shape:
        hooks.append(memory.caching(site, float(site.spec.shape["cache_ratio"])))
    if "start_compile_seconds" in site.spec.shape:
        hooks.append(compiling.compiled_at_start(site, *(site.spec.shape[f"start_compile_{what}"] for what in ("seconds", "rank"))))
    return hooks
