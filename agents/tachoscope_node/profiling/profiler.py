"""Profiles on demand, on one node: processes that ask, requests in the store, and what comes of them.

A thread of its own does all that may take long; another answers processes. Neither the agent nor a job ever waits for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.kineto_protocol import ProfileQuery
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage.profile_requests import EXPIRY_SECONDS, Request
from tachoscope_core.storage.store import Store
from tachoscope_node.profiling.automatic import Automatic
from tachoscope_node.profiling.clients import ClientProcess, Clients, KnownProcess
from tachoscope_node.profiling.endpoint import Endpoint, Sender
from tachoscope_node.profiling.limits import refusal
from tachoscope_node.profiling.parts import RecordingPlace
from tachoscope_node.profiling.recording import Recording
from tachoscope_service.common.log import Log

if TYPE_CHECKING:
    from tachoscope_node.config.settings import Profiles

_STEP_SECONDS = 1.0
_LOOK_SECONDS, _LOOK_REMOTE_SECONDS = 1.0, 15.0
"""Between two looks for requests: in an object store each is a paid request, on each node."""
_LEAD_SECONDS = 15.0
_OPEN_AGAIN_SECONDS = 60.0
_MAX_SEEN = 10_000


class Profiler:
    """Serves the processes of this node that can be profiled. No method raises.

    Args:
        known: processes under the probe, by pid. automatic: says why a job is profiled though nobody asked; None: it never is.
        clock: Unix seconds, which starts are given in. monotonic: seconds.
    """

    def __init__(
        self,
        settings: Profiles,
        store: Store,
        *,
        node: str,
        proc: Path,
        state: Path,
        log: Log,
        known: Callable[[], Mapping[int, KnownProcess]],
        automatic: Automatic | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.clients = Clients(proc, known, monotonic)
        self._store = store
        self._log = log
        self._clock = clock
        self._monotonic = monotonic
        self._automatic = automatic
        look = _LOOK_SECONDS if store.local else _LOOK_REMOTE_SECONDS
        self._poll_seconds = look
        self._place = RecordingPlace(
            store=store,
            node=node,
            proc=proc,
            directory=settings.directory_path(state),
            own=state / "profiles-outgoing",
            lead_seconds=_LEAD_SECONDS + look,
            most_seconds=settings.most_seconds,
            trace_bytes=settings.trace_bytes,
        )
        self._sockets: list[Path | None] = [None, *map(Path, settings.sockets)]
        self._endpoints: dict[Path | None, Endpoint] = {}
        self._open_at = 0.0
        self._poll_at: dict[str, float] = {}
        self._seen: dict[tuple[str, str], None] = {}
        self._recordings: dict[str, Recording] = {}
        self._step_seconds: dict[str, float] = {}
        self._announced: set[tuple[str, int]] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # --- life -------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work, if it is wanted."""
        if self.settings.enabled and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tachoscope-profiles", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop, and release sockets and files. Running recordings are lost."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._endpoints.clear()
        for recording in self._recordings.values():
            recording.close()
        self._recordings.clear()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.step()
            except Exception as error:
                self._log.warning("profiles", f"internal error while profiling: {type(error).__name__}: {error}")
            self._stop.wait(_STEP_SECONDS)

    # --- each second ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Look for requests, and advance those accepted."""
        self._open_endpoints()
        jobs = self.clients.jobs()
        self._announce(jobs)
        for job, ranks in jobs.items():
            try:
                self._poll_requests(job, ranks)
                if self._automatic is not None and 0 in ranks and job not in self._recordings:
                    self._ask_by_itself(job, self._automatic)
            except TachoscopeError as error:
                self._log.warning(f"profiles {job}", f"could not look for requests to profile job {job}: {error}")
        for job, recording in list(self._recordings.items()):
            try:
                recording.step(self._clock())
            except TachoscopeError as error:
                self._log.warning(f"profiles {job}", f"profile {recording.request.id} of job {job}: {error}")
            if recording.finished:
                self._done(job, recording)

    def _open_endpoints(self) -> None:
        now = self._monotonic()
        if len(self._endpoints) == len(self._sockets) or now < self._open_at:
            return
        self._open_at = now + _OPEN_AGAIN_SECONDS
        for directory in self._sockets:
            if directory in self._endpoints:
                continue
            try:
                self._endpoints[directory] = Endpoint(directory, partial(self._answer, directory))
            except (TachoscopeError, OSError) as error:
                self._log.info(f"profiles on demand: {error}")

    def _answer(self, directory: Path | None, asked: ProfileQuery, sender: Sender) -> str:
        who = self.clients.identify(sender, directory)
        if not isinstance(who, ClientProcess) or not asked.idle:
            return ""
        recording = self._recordings.get(who.job)
        return recording.order(who, self._clock()) if recording is not None else ""

    def _announce(self, jobs: Mapping[str, Mapping[int, ClientProcess]]) -> None:
        """Log once under which name a job can be profiled, if the user did not choose the name."""
        new = {(job, rank) for job, ranks in jobs.items() for rank in ranks} - self._announced
        for job in sorted({job for job, _ in new}):
            ranks = ", ".join(str(rank) for rank in sorted(jobs[job]))
            self._log.info(f"job {job} can be profiled on demand, ranks {ranks}: tachoscope profile --job {job} --steps 5")
        self._announced = (self._announced | new) if len(self._announced) < _MAX_SEEN else set(new)

    def _poll_requests(self, job: str, ranks: Mapping[int, ClientProcess]) -> None:
        now = self._clock()
        if now < self._poll_at.get(job, 0.0) or job in self._recordings:
            return
        self._poll_at[job] = now + self._poll_seconds
        for request_id in profile_requests.ids(self._store, job, since=now - EXPIRY_SECONDS):
            if (job, request_id) in self._seen or job in self._recordings:
                continue
            request = profile_requests.read_request(self._store, job, request_id)
            if request is None:  # its document follows
                continue
            self._seen[job, request_id] = None
            while len(self._seen) > _MAX_SEEN:
                del self._seen[next(iter(self._seen))]
            if now - request.asked_at <= EXPIRY_SECONDS:
                self._accept_request(request, ranks, now)

    def _accept_request(self, request: Request, ranks: Mapping[int, ClientProcess], now: float) -> None:
        recording = Recording(request, ranks, self._place, now=now)
        if recording.leads:
            reason = refusal(
                self._store,
                request,
                now=now,
                interval_seconds=self.settings.interval_seconds,
                job_bytes=self.settings.job_bytes,
            )
            if reason:
                recording.refuse(reason)
                self._log.info(f"profile {request.id} of job {request.job} is refused: {reason}")
                return
            recording.begin(self._usual_step(request.job), self._clock())
        why = f" ({request.reason})" if request.reason else ""
        self._log.info(f"profile {request.id} of job {request.job}, asked for by {request.asked_by}{why}: {len(ranks)} ranks here")
        self._recordings[request.job] = recording

    def _usual_step(self, job: str) -> float:
        """Return what a step of a job takes, by the probe or the last profile; 0: not known."""
        told = [known.step_seconds for known in self.clients.known().values() if known.job == job]
        return max(told, default=0.0) or self._step_seconds.get(job, 0.0)

    def _done(self, job: str, recording: Recording) -> None:
        del self._recordings[job]
        if recording.plan is not None and recording.plan.step_seconds > 0.0:
            self._step_seconds[job] = recording.plan.step_seconds
        states = [part.state for part in recording.parts.values()]
        failed = next((f": {part.reason}" for part in recording.parts.values() if part.reason), "")
        kept = f"{states.count('stored')} of {len(states)} traces are in the store"
        self._log.info(f"profile {recording.request.id} of job {job}: {kept}{failed}")

    def _ask_by_itself(self, job: str, automatic: Automatic) -> None:
        reason = automatic.reason(job, self._monotonic())
        if reason:
            request = profile_requests.new_request(
                job, automatic.steps, now=self._clock(), asked_by=f"agent {self._place.node}", reason=reason
            )
            profile_requests.write_request(self._store, request)

    # --- what others read -------------------------------------------------------------------------------------------------

    def page(self) -> dict[str, object]:
        """Return which processes can be profiled, and why others cannot, for people and programs."""
        return {
            "sockets": [str(where or "abstract") for where in list(self._endpoints)],
            "ranks": [
                {"training_job": job, "rank": rank, "world_size": who.world_size, "pid": who.pid}
                for job, ranks in self.clients.jobs().items()
                for rank, who in sorted(ranks.items())
            ],
            "not_profiled": [{"pid": pid, "reason": reason} for pid, reason in self.clients.unknown().items()],
            "recording": sorted(self._recordings),
        }
