"""What is told of a profile that somebody asked for, by what agents have said of it in the store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage.profile_requests import RankState, Request
from tachoscope_core.storage.profile_status import stage
from tachoscope_core.storage.store import Store

LATEST_SECONDS, MOST_LATEST = 3600.0, 8
State = Literal["asked", "recording", "done", "failed"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile that somebody asked for.

    Attributes:
        asked_at: Unix seconds. state: `done` when nothing more comes of it, `failed` when there is no trace. detail: in words.
    """

    id: str
    job: str
    steps: int
    asked_at: float
    asked_by: str = ""
    state: State = "asked"
    detail: str = "asking"
    ranks: Sequence[RankState] = ()


def profile_state(store: Store, request: Request, now: float) -> Profile:
    """Return how far a profile is; `now` in Unix seconds.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    one = Profile(id=request.id, job=request.job, steps=request.steps, asked_at=request.asked_at, asked_by=request.asked_by)
    answers = profile_requests.read_answers(store, request.job, request.id)
    try:
        at = stage(request, answers, now)
    except TachoscopeError as error:  # nobody took it, or it was refused
        return msgspec.structs.replace(one, state="failed", detail=str(error), ranks=answers.ranks)
    if not at.over:
        state: State = "asked" if answers.plan is None else "recording"
        return msgspec.structs.replace(one, state=state, detail=at.text, ranks=answers.ranks)
    stored = sum(rank.state == "stored" for rank in answers.ranks)
    world = max((rank.world_size for rank in answers.ranks), default=0)
    detail = f"{stored} of {world} traces are recording {one.id} of the store"
    return msgspec.structs.replace(one, state="done" if stored else "failed", detail=detail, ranks=answers.ranks)


def latest(store: Store, job: str, now: float) -> list[Profile]:
    """Return all profiles of a job that were requested in the last hour, the newest first. Unreadable ones are skipped."""
    found = []
    with contextlib.suppress(TachoscopeError):
        for request_id in reversed(profile_requests.ids(store, job, since=now - LATEST_SECONDS)[-MOST_LATEST:]):
            with contextlib.suppress(TachoscopeError):
                request = profile_requests.read_request(store, job, request_id)
                if request is not None:
                    found.append(profile_state(store, request, now))
    return found
