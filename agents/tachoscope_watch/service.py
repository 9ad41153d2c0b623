"""The watch as a service: a cycle a minute, and the pages of what it found."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qs, unquote

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.allowed_hosts import is_loopback
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_service.http import web_config
from tachoscope_service.http.server import AnyHandler, Request, Response, WebServer
from tachoscope_service.metrics.family import Family
from tachoscope_service.metrics.prometheus_text import CONTENT_TYPE_LATEST, Exposition
from tachoscope_watch import api
from tachoscope_watch.compaction import Compaction
from tachoscope_watch.cycle import JUDGE_SECONDS, Failed, JobLooks, executor
from tachoscope_watch.families import families
from tachoscope_watch.hang import hang_of
from tachoscope_watch.job_roles import JobRoles, read_roles
from tachoscope_watch.judge_job import LEAST_SECONDS, is_running, unjudged, with_nodes
from tachoscope_watch.leases import Leases, ShareMemory
from tachoscope_watch.live_jobs import LiveJob, NodeReader
from tachoscope_watch.nodes.lifecycle import ACTUATORS, NAME, NodeLifecycle
from tachoscope_watch.nodes.states import Rules
from tachoscope_watch.profiles import MOST_STEPS, BusyError, Profiles
from tachoscope_watch.scheduler.collector import SCHEDULERS, SchedulerCollector
from tachoscope_watch.sharing import Found, merged
from tachoscope_watch.training_jobs import TrainingJobPages
from tachoscope_watch.view import JobView

_LATE_CYCLES = 3.0
"""Without a cycle that ended for so many times its interval the watch is not healthy."""
_GLANCE_SECONDS = 15.0
"""Between two looks at what the nodes say: for hangs alone between two cycles, for all that they say within a long one."""
_JSON = "application/json"
_PAGE = b"""<!doctype html><title>tachoscope watch</title><h1>tachoscope watch</h1>
<ul><li><a href="/v1/jobs">jobs</a><li><a href="/metrics">metrics</a><li><a href="/v1/openapi.json">the API</a>
<li><a href="/healthz">healthz</a></ul>"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is watched, and where it is served.

    Attributes:
        every_seconds: from the beginning of a cycle to that of the next. workers: processes that look at jobs.
        scheduler: that is asked for its queue and accelerators, one of `SCHEDULERS`; empty: none.
        node_rules: of the nodes' life cycle; None: there is none.
        lease_seconds: the jobs are shared with all watches that keep such a lease in the store; 0.0: all are this watch's.
        over_seconds: of a job that are judged, where enough steps fit into them. compact_seconds: from one compaction of the store
            to the next; 0: it is not compacted. job_roles: file of who may submit, see and cancel training jobs over
            the API; None: nobody may submit or cancel.
    """

    store: str
    address: str = "127.0.0.1"
    port: int = 9466
    web_config: Path | None = None
    every_seconds: float = 60.0
    workers: int = 2
    over_seconds: float = LEAST_SECONDS
    compact_seconds: float = 3600.0
    lease_seconds: float = 0.0
    scheduler: str = ""
    job_roles: Path | None = None
    node_rules: Rules | None = None


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What was found; `number` 0: nothing yet. `seconds`: what the last whole cycle took; `ended`: its end in Unix seconds.

    `sharers`: the watches that shared the jobs when it began; none where jobs are not shared.
    """

    number: int = 0
    views: tuple[JobView, ...] = ()
    failed: tuple[Failed, ...] = ()
    families: tuple[Family, ...] = ()
    seconds: float = 0.0
    ended: float = 0.0
    sharers: tuple[str, ...] = ()


class Watch:
    """Watches a store until it is stopped.

    Raises:
        TachoscopeError: the address cannot be listened on, or the web config has faults.
    """

    def __init__(self, settings: Settings, log: Log, *, executor: Callable[[int, ShareMemory | None], Executor] = executor) -> None:
        self._settings = settings
        self._log = log
        self._stop = threading.Event()
        self._last_good = time.monotonic()
        self.round = CycleResult()
        config = web_config.load(settings.web_config) if settings.web_config is not None else None
        self._job_roles = self._read_roles(config)
        store = Store(settings.store)
        self._leases = None
        if settings.lease_seconds:
            self._leases = Leases(store, settings.lease_seconds, log, well=lambda: self._late() is None)
        self._memory = self._leases.memory if self._leases is not None else None
        self._executor = executor
        self._scheduler = SchedulerCollector(SCHEDULERS[settings.scheduler](), log) if settings.scheduler else None
        self._lifecycle = self._node_lifecycle(store)
        self._exposition = Exposition(self._families, self._page_key)
        self._training_jobs = TrainingJobPages(store, self._view, lambda: self._job_roles)
        routes: dict[str, AnyHandler] = {
            "/": lambda _: Response(200, "text/html; charset=utf-8", _PAGE),
            "/metrics": lambda _: Response(200, CONTENT_TYPE_LATEST, self._exposition.page()),
            "/healthz": self._healthz,
            "/v1/jobs": lambda _: Response(200, _JSON, api.jobs(self._views())),
            "/v1/jobs/*": self._job,
            "/v1/jobs/*/profile": self._profiles_of,
            "/v1/openapi.json": lambda _: Response(200, _JSON, msgspec.json.encode(api.openapi(version("tachoscope")))),
        }
        routes |= self._training_jobs.gets()
        posts: dict[str, AnyHandler] = {"/v1/jobs/*/profile": self._ask_profile, **self._training_jobs.posts()}
        self._known_clients = config is not None and config.knows_clients
        budget = min(JUDGE_SECONDS, 0.8 * settings.every_seconds)
        self._looks = JobLooks(settings.store, settings.over_seconds, budget)
        self._nodes = NodeReader(store, lambda line: log.warning("nodes", line))
        self._profiles = Profiles(store, log)
        self._compaction = Compaction(settings.store, settings.compact_seconds, log, self._memory)
        self.web = WebServer(routes, posts=posts, address=settings.address, port=settings.port, web_config=config, log=log.info)
        self.web.start()
        scheme = "https" if config is not None and config.cert_file is not None else "http"
        host = f"[{settings.address}]" if ":" in settings.address else settings.address
        self.url = f"{scheme}://{host}:{self.web.port}"

    def _node_lifecycle(self, store: Store) -> NodeLifecycle | None:
        rules, leases = self._settings.node_rules, self._leases
        if rules is None:
            return None
        watch = leases.watch if leases is not None else socket.gethostname()
        return NodeLifecycle(store, rules, ACTUATORS[rules.scheduler](rules), self._log, watch=watch, mine=lambda: self._has(NAME))

    def run(self) -> None:
        """Do a cycle every `every_seconds` until `stop`."""
        self._log.info(f"watching {self._settings.store} every {self._settings.every_seconds:g} s; serving {self.url}/v1/jobs")
        if self._leases is not None:
            self._leases.start()
        for part in (self._scheduler, self._lifecycle):
            if part is not None:
                part.start()
        pool = self._executor(self._settings.workers, self._memory)
        try:
            while not self._stop.is_set():
                due, sharing = time.monotonic() + self._settings.every_seconds, self._sharing()
                pool = self._tried(self.run_cycle, pool)
                self._compaction.check()
                while due - time.monotonic() > _GLANCE_SECONDS and not self._waited(_GLANCE_SECONDS, sharing):
                    pool = self._tried(self.check_hangs, pool)
                self._waited(max(due - time.monotonic(), 0.1), sharing)
        finally:
            self._compaction.close()
            for part in (self._scheduler, self._lifecycle):
                if part is not None:
                    part.close()
            pool.shutdown(wait=True, cancel_futures=True)
            self.web.stop()
            self._profiles.close()
            if self._leases is not None:
                self._leases.close()

    def _waited(self, seconds: float, sharing: tuple[tuple[str, ...], ...]) -> bool:
        """Wait; return whether a cycle is due before, or none any more: the jobs are shared otherwise, or the watch is to end."""
        if self._leases is None:
            return self._stop.wait(seconds)
        until = time.monotonic() + seconds
        while self._sharing() == sharing and time.monotonic() < until:
            if self._stop.wait(min(self._leases.renewed_every / 4, max(until - time.monotonic(), 0.0))):
                return True
        return self._sharing() != sharing

    def _tried(self, task: Callable[[Executor], None], pool: Executor) -> Executor:
        """Do a task, whatever becomes of it; return the processes to go on with."""
        try:
            task(pool)
        except BrokenProcessPool:  # killed for memory, or by a person
            self._log.warning("pool", "a worker process died; all of them are restarted")
            pool.shutdown(wait=False, cancel_futures=True)
            return self._executor(self._settings.workers, self._memory)
        except TachoscopeError as error:
            self._log.warning("store", str(error))
        return pool

    def run_cycle(self, pool: Executor) -> None:
        """Judge the jobs that are due; show their views, and which could not be looked at."""
        began, now = time.monotonic(), time.time()
        views: list[JobView] = []
        failed: list[Failed] = []
        sharers = self._leases.watches() if self._leases is not None else ()
        live, glanced = self._live_jobs(now), began
        for found in self._looks.cycle(now, pool, live, self._has):
            if time.monotonic() - glanced > _GLANCE_SECONDS:
                live, glanced = self._heard(live), time.monotonic()
            if isinstance(found, Failed):
                if not self._has(found.job):
                    continue
                failed.append(found)
                self._log.warning(f"job {found.job}", f"job {found.job} could not be analyzed: {found.reason}")
            else:
                views.append(found)
                if found.unwritten:
                    self._log.warning("unwritten", f"a report was not written: {found.unwritten}")
            if self._stop.is_set():
                return
        self._last_good = time.monotonic()
        if not self._sharing():
            return  # the earlier views stay until other watches have judged the jobs
        views.sort(key=lambda view: view.job)
        known = {view.job: view for view in self._views()}
        seconds = time.monotonic() - began
        kept = tuple(_with_checkpoints(view, known.get(view.job)) for view in views)
        if glanced > began:  # what was found at the begin of the cycle is older than what was told in it
            kept = self._with_nodes(kept, failed, live, time.time())
        self._tell((*kept, *self._handed_over(views, known)), tuple(failed), seconds, time.time(), sharers)
        hung = ", ".join(view.job for view in views if view.state == "hung")
        jobs = f"{len(views)} {'job' if len(views) == 1 else 'jobs'}"
        waiting = [view for view in views if view.put_off]
        late = f"; {len(waiting)} put off, the oldest report {_oldest(waiting, now)}" if waiting else ""
        self._log.info(f"{jobs} in {seconds:.1f} s" + late + (f"; hung: {hung}" if hung else ""))

    def _heard(self, live: dict[str, LiveJob]) -> dict[str, LiveJob]:
        """Tell what the nodes say while a long cycle judges; return it, or what they said before where they cannot be read."""
        told, now = self.round, time.time()
        with contextlib.suppress(TachoscopeError):  # the next cycle says why
            live = self._live_jobs(now)
            if self._sharing():
                self._tell(
                    self._with_nodes(told.views, told.failed, live, now), told.failed, told.seconds, told.ended, told.sharers
                )
        return live

    def _with_nodes(
        self, views: Sequence[JobView], failed: Sequence[Failed], live: Mapping[str, LiveJob], now: float
    ) -> tuple[JobView, ...]:
        """Return views with what the nodes say now, and a view of each job that runs and has none yet."""
        known = {view.job for view in views} | {one.job for one in failed}
        kept = [with_nodes(view, live[view.job], now) if view.job in live and self._has(view.job) else view for view in views]
        new = [unjudged(one, now) for job, one in live.items() if job not in known and is_running(one) and self._has(job)]
        return tuple(sorted([*kept, *new], key=lambda view: view.job))

    def _live_jobs(self, now: float) -> dict[str, LiveJob]:
        live = self._nodes.live_jobs(now)
        if self._scheduler is not None:
            self._scheduler.take_live(now, live)
        return live

    def _handed_over(self, views: Sequence[JobView], known: Mapping[str, JobView]) -> list[JobView]:
        """Return what was found earlier of jobs that are other watches' now, as long as these have not looked at them."""
        if self._leases is None:
            return []
        looked = {view.job for view in views}
        earlier = (view for view in self.round.views if view.job not in looked and not self._has(view.job))
        return [view for view in earlier if known.get(view.job) is view]

    def check_hangs(self, pool: Executor) -> None:
        """Judge only the jobs again that began to hang since the last cycle, or hang no more."""
        before, now = self.round, time.time()
        live = self._live_jobs(now)
        hung = {job: hang_of(one) is not None for job, one in live.items()}
        mine = [view for view in before.views if self._has(view.job)]
        changed = [view.job for view in mine if hung.get(view.job, view.state == "hung") != (view.state == "hung")]
        looks = self._looks.again(now, pool, live, changed)
        found = {look.job: look for look in looks if isinstance(look, JobView)}  # what cannot be read, the next cycle says
        if not found:
            return
        views = tuple(_with_checkpoints(found.get(view.job, view), view) for view in before.views)
        self._tell(views, before.failed, before.seconds, before.ended, before.sharers)
        for view in found.values():
            self._log.info(f"job {view.job} {'hangs' if view.state == 'hung' else 'hangs no more'}")

    def _tell(
        self, views: tuple[JobView, ...], failed: tuple[Failed, ...], seconds: float, ended: float, sharers: tuple[str, ...]
    ) -> None:
        shown = tuple(families(views, failed, seconds=seconds, ended=ended))
        self.round = CycleResult(self.round.number + 1, views, failed, shown, seconds, ended, sharers)
        if self._leases is not None:
            self._leases.publish(Found(self._leases.watch, sharers, views))
        if self._lifecycle is not None:
            self._lifecycle.take_jobs(time.time(), self._views(), self._nodes.statuses)

    def _sharing(self) -> tuple[tuple[str, ...], ...]:
        """Return a value that changes when jobs are gained from other watches or lost to them; empty: this watch has none now."""
        return (("alone",),) if self._leases is None else self._leases.key()

    def _has(self, job: str) -> bool:
        return self._leases is None or self._leases.has(job)

    def _views(self) -> Sequence[JobView]:
        """Return a view of each job of the store, those of other watches included."""
        if self._leases is None:
            return self.round.views
        own = Found(self._leases.watch, self.round.sharers, self.round.views)
        return merged([own, *self._leases.others()], self._leases.watches())

    def _view(self, job: str) -> JobView | None:
        return next((view for view in self._views() if view.job == job), None)

    def _page_key(self) -> object:
        parts = (part for part in (self._scheduler, self._lifecycle) if part is not None)
        return self.round.number, self._sharing(), tuple(part.number for part in parts)

    def _families(self) -> Sequence[Family]:
        """Return the metrics of the last cycle, of those jobs that are this watch's now, of the scheduler and of the nodes."""
        parts = (part for part in (self._scheduler, self._lifecycle) if part is not None)
        return [*self._of_jobs(), *(family for part in parts for family in part.families)]

    def _of_jobs(self) -> Sequence[Family]:
        last, leases = self.round, self._leases
        if leases is None or not last.number:
            return last.families
        views = [view for view in last.views if leases.has(view.job)]
        failed = [one for one in last.failed if leases.has(one.job)]
        share = 1.0 / max(len(leases.watches()), 1) if leases.key() else 0.0
        return families(views, failed, seconds=last.seconds, ended=last.ended, watch_share=share)

    def reload(self) -> None:
        """Read the web configuration again; one with faults changes nothing. May be called from a signal handler."""
        if self._settings.web_config is None:
            return
        try:
            config = web_config.load(self._settings.web_config)
            roles = self._read_roles(config)
            self.web.reload(config)
        except TachoscopeError as error:
            self._log.warning("web config", f"web configuration not reloaded, the previous one stays in effect: {error}")
            return
        self._known_clients, self._job_roles = config.knows_clients, roles
        self._log.info("web configuration reloaded")

    def stop(self) -> None:
        """Ask for the end; may be called from a signal handler."""
        self._stop.set()

    def _late(self) -> float | None:
        """Return for how long no cycle ended; None: not for too long."""
        late = time.monotonic() - self._last_good
        return late if late > _LATE_CYCLES * max(self._settings.every_seconds, 10.0) else None

    def _healthz(self, _: Request) -> Response:
        late = self._late()
        if late is not None:
            return Response(503, "text/plain; charset=utf-8", f"no cycle ended for {late:.0f} s\n".encode())
        return Response(200, "text/plain; charset=utf-8", b"ok\n")

    def _read_roles(self, config: web_config.WebConfig | None) -> JobRoles | None:
        if self._settings.job_roles is None:
            return None
        if config is None or not config.knows_clients:
            raise TachoscopeError(
                "anyone who can reach the address could run commands: training jobs are accepted only from known clients",
                fix="require a password, a token or a client certificate with --web-config",
            )
        return read_roles(self._settings.job_roles, config)

    def _job(self, request: Request) -> Response:
        name = unquote(request.path.rpartition("/")[2])
        view = self._view(name)
        return _no_such(name) if view is None else Response(200, _JSON, msgspec.json.encode(view))

    def _profiles_of(self, request: Request) -> Response:
        name = unquote(request.path.split("/")[-2])
        asked = self._profiles.of_job(name)
        view = self._view(name)
        if view is None and not asked:
            return _no_such(name)
        known = {one.id: one for one in [*(view.profiles if view is not None else []), *asked]}  # of one's own more is known
        return Response(200, _JSON, msgspec.json.encode({"profiles": [known[key] for key in sorted(known, reverse=True)]}))

    def _ask_profile(self, request: Request) -> Response:
        name = unquote(request.path.split("/")[-2])
        if not self._known_clients and not is_loopback(self._settings.address):
            why = "anyone who can reach this address could profile jobs: use --web-config to require credentials"
            return _error(403, why)
        if self._view(name) is None:
            return _no_such(name)
        asked = parse_qs(request.query, keep_blank_values=True)
        text = ",".join(asked.get("steps", ["5"]))
        if asked.keys() - {"steps"} or not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= MOST_STEPS:
            return _error(422, f"?steps= from 1 to {MOST_STEPS} is what can be asked for, not {request.query[:80]!r}")
        try:
            profile = self._profiles.request_profile(name, int(text))
        except BusyError as error:
            return _error(409, f"profile {error} of job {name} is under way")
        return Response(202, _JSON, msgspec.json.encode(profile))


def _oldest(views: Sequence[JobView], now: float) -> str:
    """Return how old the oldest report of some jobs is at a time in Unix seconds."""
    judged = [view.judged for view in views if view.judged]
    return f"{now - min(judged):.0f} s old" if len(judged) == len(views) else "still to be made"


def _error(status: int, text: str) -> Response:
    return Response(status, _JSON, msgspec.json.encode({"error": text}))


def _no_such(name: str) -> Response:
    return _error(404, f"no live job is called {name}")


def _with_checkpoints(view: JobView, before: JobView | None) -> JobView:
    """Return a view with the checkpoints of earlier looks where this one saw none: they come rarer than looks."""
    if view.checkpoints or before is None or not before.checkpoints:
        return view
    return msgspec.structs.replace(view, checkpoints=before.checkpoints)


@contextlib.contextmanager
def signals(watch: Watch) -> Iterator[None]:
    """Stop the watch on SIGTERM and SIGINT, and read its web configuration again on SIGHUP, while the block runs."""
    previous = {number: signal.signal(number, lambda *_: watch.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: watch.reload())
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
