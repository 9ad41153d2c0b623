"""Where a profile is that somebody asked for, by what agents have said of it."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.profile_requests import EXPIRY_SECONDS, Request, RequestAnswers

_LATE_SECONDS = 240.0
"""After the last moment that is recorded nobody is waited for longer: writing, collecting and storing have their own limits."""
_HOW = (
    "is an agent running on its nodes, with this store? is the job one of PyTorch, under the probe or with KINETO_USE_DAEMON=1? "
    "the agent's log, and its page /v1/profiles, name the jobs that can be profiled"
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a profile is. `done`, `total`: of what the bar shows, seconds or ranks. `over`: nothing more will come."""

    text: str
    done: float = 0.0
    total: float | None = None
    over: bool = False


def stage(request: Request, answers: RequestAnswers, now: float) -> Stage:
    """Say where a profile is; `now` in Unix seconds.

    Raises:
        TachoscopeError: nobody took the request, or it was refused.
    """
    plan, ranks = answers.plan, answers.ranks
    if plan is None:
        if now > request.asked_at + EXPIRY_SECONDS:
            if ranks:
                raise TachoscopeError(f"no agent has rank 0 of job {request.job}, so no start time was set", fix=_HOW)
            raise TachoscopeError(f"no agent took the request to profile job {request.job}", fix=_HOW)
        return Stage("waiting for an agent")
    if plan.refused:
        raise TachoscopeError(f"the agent does not profile job {request.job}: {plan.refused}")
    due = plan.passes[-1]
    what = "a first short look" if not plan.step_seconds else f"{request.steps} steps"
    if now < due.start:
        lead = due.start - (plan.passes[-2].start + plan.passes[-2].seconds if len(plan.passes) > 1 else request.asked_at)
        return Stage(f"all ranks begin in {due.start - now:.0f} s: {what}", max(lead - (due.start - now), 0.0), max(lead, 1.0))
    if now < due.start + due.seconds:
        return Stage(f"recording {what}", now - due.start, due.seconds)
    done = sum(rank.state in {"stored", "failed"} for rank in ranks)
    world = max((rank.world_size for rank in ranks), default=0)
    late = now > due.start + due.seconds + _LATE_SECONDS
    settled = (
        plan.final and bool(ranks) and done == len(ranks) and (done >= world or now > due.start + due.seconds + EXPIRY_SECONDS)
    )
    return Stage("collecting the traces", done, world or None, over=settled or late)
