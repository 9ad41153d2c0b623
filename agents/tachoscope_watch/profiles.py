"""Profiles that are asked for over the API: requests go into the store, and what agents say of them is told at once.

A page must be ready at once and a store may be slow, so a thread of its own writes and reads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage.profile_requests import Request
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_watch.profile_view import Profile, profile_state

MOST_STEPS = 10_000
MOST_KEPT = 256
_LOOK_SECONDS, _LOOK_REMOTE_SECONDS = 1.0, 10.0
"""In an object store each look is a paid request."""
_GIVE_UP_SECONDS = 900.0
_BY = "the watch's API"


class BusyError(Exception):
    """A profile of the job is under way; the message is its id."""


class Profiles:
    """What was asked for since the watch began, the newest of all jobs. Any thread may call it.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, store: Store, log: Log, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._kept: deque[tuple[Request, Profile]] = deque(maxlen=MOST_KEPT)
        self._changed = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def request_profile(self, job: str, steps: int) -> Profile:
        """Have a job's ranks recorded.

        Raises:
            BusyError: a profile of the job is under way.
        """
        request = profile_requests.new_request(job, steps, now=self._clock(), asked_by=_BY)
        profile = Profile(id=request.id, job=job, steps=steps, asked_at=request.asked_at, asked_by=_BY)
        with self._changed:
            under_way = next((one.id for _, one in self._kept if one.job == job and not _is_over(one)), None)
            if under_way is not None:
                raise BusyError(under_way)
            self._kept.appendleft((request, profile))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tachoscope-watch-profiles", daemon=True)
                self._thread.start()
            self._changed.notify()
        self._log.info(f"profile {request.id} of job {job} was asked for over the API")
        return profile

    def of_job(self, job: str) -> list[Profile]:
        """Return the profiles of a job, the newest first."""
        with self._changed:
            return [one for _, one in self._kept if one.job == job]

    def close(self) -> None:
        """Look no more; what agents do goes on."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(10.0)

    def _run(self) -> None:
        seconds = _LOOK_SECONDS if self._store.local else _LOOK_REMOTE_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or any(not _is_over(one) for _, one in self._kept))
                if self._stopped:
                    return
                open_ones = [(request, one) for request, one in self._kept if not _is_over(one)]
            for request, one in open_ones:
                self._replace(one, self._looked(request, one))
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or any(one.detail == "asking" for _, one in self._kept), seconds)

    def _replace(self, before: Profile, after: Profile) -> None:
        with self._changed:
            for place, (request, one) in enumerate(self._kept):
                if one.id == before.id:
                    self._kept[place] = request, after

    def _looked(self, request: Request, one: Profile) -> Profile:
        if one.detail == "asking":
            try:
                profile_requests.write_request(self._store, request)
            except TachoscopeError as error:
                return msgspec.structs.replace(one, state="failed", detail=str(error))
            return msgspec.structs.replace(one, detail="waiting for an agent")
        try:
            return profile_state(self._store, request, self._clock())
        except TachoscopeError as error:  # the store may come back
            gives_up = self._clock() > one.asked_at + _GIVE_UP_SECONDS
            return msgspec.structs.replace(one, state="failed" if gives_up else one.state, detail=str(error))


def _is_over(profile: Profile) -> bool:
    return profile.state in {"done", "failed"}
