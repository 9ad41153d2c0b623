"""Why a request is refused: profiles cost the job time and the store room, so they are rare, small, and one at a time."""

from __future__ import annotations

from tachoscope_core.storage import profile_requests
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.profile_requests import Request
from tachoscope_core.storage.store import Store


def refusal(store: Store, request: Request, *, now: float, interval_seconds: float, job_bytes: int) -> str:
    """Return why a request is refused, or nothing.

    Args:
        interval_seconds: least time between two profiles of a job. job_bytes: that all traces of a job may have in the store.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    for before in reversed(profile_requests.ids(store, request.job, since=now - interval_seconds - 3600.0)):
        plan = profile_requests.read_plan(store, request.job, before) if before != request.id else None
        if plan is None or not plan.passes:
            continue
        ago = now - plan.passes[-1].start
        if ago < interval_seconds:
            when = f"began {ago:.0f} s ago" if ago > 0 else f"begins in {-ago:.0f} s"
            return f"profile {before} of job {request.job} {when}; there may be one in {interval_seconds:g} s"
        break
    if request.steps < 1:
        return f"{request.steps} steps were asked for"
    used = sum(trace.bytes for trace in stored_traces.traces(store, request.job))
    if used >= job_bytes:
        return (
            f"the traces of job {request.job} have {used / 2**30:.1f} GiB in the store, of {job_bytes / 2**30:g} that they may "
            "have: remove recordings below its folder traces/"
        )
    return ""
