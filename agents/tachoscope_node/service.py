"""The agent as a service: its threads, signals, pages and push."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import agent as names
from tachoscope_core.storage import spool
from tachoscope_node.agent import Agent
from tachoscope_node.config import checks
from tachoscope_node.config.settings import Config
from tachoscope_node.spool.exclusive_lock import take_spool, take_state, write_holder
from tachoscope_service.common.log import Log
from tachoscope_service.common.watched_files import WatchedFiles
from tachoscope_service.http import web_config
from tachoscope_service.http.server import Request, Response, WebServer
from tachoscope_service.metrics.family import Family
from tachoscope_service.metrics.otlp.push import OtlpPush, resource_attributes
from tachoscope_service.metrics.prometheus_text import CONTENT_TYPE_LATEST, Exposition

_STALLED_SECONDS = 30.0
"""Without a tick for this long the agent is not healthy."""
_SWITCH_SECONDS = 0.001
"""A scrape that comes during a tick waits no longer than this for its turn at the interpreter; Python's default is 5 ms."""
_CATCH_UP_SECONDS = 0.1
"""The pause between looks at the spool while more waits to be read than one look may take."""
_MOST_FILES = 65536
"""Files that the agent may have open: each segment that is followed is."""
_FIXED = ("spool", "store", "state", "node", "address", "port", "proc", "sys", "scrape_seconds", "profiles")
"""Keys that a reload does not change."""
_PAGE = b"""<!doctype html><title>tachoscope agent</title><h1>tachoscope agent</h1>
<ul><li><a href="/metrics">metrics</a><li><a href="/v1/ranks">ranks</a><li><a href="/v1/health">health of GPUs</a>
<li><a href="/v1/profiles">profiles on demand</a>
<li><a href="/healthz">healthz</a><li><a href="/readyz">readyz</a></ul>"""


class Service:
    """Runs an agent until it is told to stop.

    Raises:
        TachoscopeError: another agent has this spool or state directory, or a part of it cannot be opened.
    """

    def __init__(self, config: Config, log: Log, *, reload_config: Callable[[], Config] | None = None) -> None:
        self._log = log
        self._reload_config = reload_config
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._wake = threading.Event()
        self._started = time.time()
        self._otlp: OtlpPush | None = None
        self._ranks_page = self._health_page = (-1, b"")
        self._reloaded = True
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MOST_FILES) if hard > 0 else _MOST_FILES, hard))
        self._spool_lock = take_spool(config.spool_path)
        self._state_lock = -1
        try:
            self._state_lock = take_state(config.state_path)
            web = web_config.load(Path(config.web_config)) if config.web_config else None
            self._web_files = WatchedFiles(web.files if web is not None else ())
            self.agent = Agent(config, log)
            self._exposition = Exposition(self._page_families, lambda: self.agent.ticks, proc=config.proc)
            routes = {
                "/": lambda _: Response(200, "text/html; charset=utf-8", _PAGE, ()),
                "/metrics": self._metrics,
                "/healthz": self._healthz,
                "/readyz": self._readyz,
                "/v1/ranks": self._ranks,
                "/v1/health": self._health,
                "/v1/profiles": lambda _: Response(200, "application/json", msgspec.json.encode(self.agent.profiler.page()), ()),
            }
            self.web = WebServer(routes, address=config.address, port=config.port, web_config=web, log=log.info)
            self.web.start()
            self._otlp = self._new_push(config)
        except BaseException:
            self._release()
            raise
        scheme = "https" if web is not None and web.cert_file is not None else "http"
        host = f"[{config.address}]" if ":" in config.address else config.address or "0.0.0.0"  # noqa: S104  # all addresses
        self.url = f"{scheme}://{host}:{self.web.port}"

    # --- life -------------------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Work until `stop`, then ship what is left; say whether everything is in the store."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._say_where(self.agent.config)  # now that it takes signals: a SIGHUP to an agent that does not would end it
        self._warn(self.agent.config)
        shipper = threading.Thread(target=self._ship, name="tachoscope-ship", daemon=True)
        shipper.start()
        self.agent.profiler.start()
        due = time.monotonic()
        while not self._stop.is_set():
            more = self._tick()
            self._wake.set()
            if self._reload.is_set() or self._web_files.changed(time.monotonic()):
                self._reload.clear()
                self._apply_reload()
            due = max(due + self.agent.config.tick_seconds, time.monotonic() - 60.0)
            self._stop.wait(_CATCH_UP_SECONDS if more else max(due - time.monotonic(), 0.01))
        return self._end(shipper)

    def stop(self) -> None:
        """Ask for the end; may be called from a signal handler."""
        self._stop.set()

    def reload(self) -> None:
        """Ask to read the configuration again; may be called from a signal handler."""
        self._reload.set()

    def _tick(self) -> bool:
        """Tick; a fault of the agent's own must not end it, and shows: without ticks `/healthz` fails."""
        try:
            self._keep_spool()
            return self.agent.tick()
        except Exception as error:
            self._log.warning("tick", f"internal error in the agent's tick: {type(error).__name__}: {error}")
            return False

    def _keep_spool(self) -> None:
        """Take the spool again where somebody removed it: else nobody would find this agent, and another could start."""
        config = self.agent.config
        with contextlib.suppress(FileNotFoundError):
            if (config.spool_path / spool.AGENT_LOCK).stat().st_ino == os.fstat(self._spool_lock).st_ino:
                return
        try:
            lock = take_spool(config.spool_path)
        except TachoscopeError as error:
            self._log.warning("spool", str(error))
            return
        os.close(self._spool_lock)
        self._spool_lock = lock
        self._say_where(config)

    def _ship(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self.agent.ship()
            except Exception as error:
                self.agent.errors["store"] += 1
                self._log.warning("ship", f"internal error while shipping: {type(error).__name__}: {error}")

    def _end(self, shipper: threading.Thread) -> bool:
        deadline = time.monotonic() + self.agent.config.stop_seconds
        self._wake.set()
        shipper.join(max(deadline - time.monotonic(), 0.0))
        complete = not shipper.is_alive() and self.agent.finish(deadline)
        if self._otlp is not None:
            self._otlp.stop(max(min(deadline - time.monotonic(), 5.0), 0.5))
        self.web.stop()
        if not shipper.is_alive():
            self.agent.close()
        self._release()
        self._say_what_is_left(complete=complete)
        return complete

    def _say_what_is_left(self, *, complete: bool) -> None:
        samples = self.agent.samples
        left = [] if complete else ["records stay in the spool"]
        if files := samples.unshipped_count():
            left.append(f"{files} {'file' if files == 1 else 'files'} of metric samples in {samples.directory}")
        if left:
            failing = self.agent.shipper.failing or samples.failing
            why = f" ({failing})" if failing else ""
            self._log.warning(None, f"stopped; not in the store: {'; '.join(left)}; the next start ships them{why}")
        else:
            self._log.info("stopped; everything is in the store")

    def _release(self) -> None:
        for lock in (self._spool_lock, self._state_lock):
            if lock >= 0:
                os.close(lock)

    def _apply_reload(self) -> None:
        if self._reload_config is None:
            return
        old = self.agent.config
        try:
            config = self._reload_config()
            web = web_config.load(Path(config.web_config)) if config.web_config else None
            fixed = [key for key in _FIXED if getattr(config, key) != getattr(old, key)]
            config = msgspec.structs.replace(config, **{key: getattr(old, key) for key in _FIXED})
            push = self._new_push(config) if config.otlp != old.otlp else self._otlp
        except TachoscopeError as error:
            self._web_files = self._web_files.as_now()  # said once, not every ten seconds
            self._reloaded = False
            self._log.warning(None, f"configuration not reloaded, the previous one stays in effect: {error}")
            return
        self.web.reload(web)
        self._web_files = WatchedFiles(web.files if web is not None else ())
        if push is not self._otlp and self._otlp is not None:
            self._otlp.stop(1.0)
        self._otlp = push
        self.agent.reconfigure(config)
        self._reloaded = True
        self._warn(config)
        self._log.info("reloaded" + (f"; a restart is needed for {', '.join(fixed)}" if fixed else ""))

    def _new_push(self, config: Config) -> OtlpPush | None:
        if config.otlp is None:
            return None
        push = OtlpPush(
            config.otlp,
            families=self.families,
            resource=resource_attributes(os.environ, config.node_name),
            start_time_seconds=self._started,
            log=self._log.info,
        )
        push.start()
        return push

    def _say_where(self, config: Config) -> None:
        for lock in (self._spool_lock, self._state_lock):
            write_holder(lock, spool.LiveAgent(os.getpid(), config.store_url, self.url))
        self._log.info(f"serving {self.url}/metrics; spool {config.spool_path}, store {config.store_url}")

    def _warn(self, config: Config) -> None:
        for warning in checks.warnings(config):
            self._log.warning(None, warning)

    # --- pages ------------------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Return all metrics of this moment, those of the pages and the push included."""
        push = self._otlp.exports if self._otlp is not None else {}
        return [
            *self.agent.exported(),
            Family(names.CONFIG_RELOAD_SUCCESS, [((), float(self._reloaded))]),
            Family(names.HTTP_REFUSED, [((reason,), float(count)) for reason, count in self.web.refused.items()]),
            Family(names.OTLP_EXPORTS, [((outcome,), float(count)) for outcome, count in push.items()]),
        ]

    def _page_families(self) -> Sequence[Family]:
        """Return the metrics of the page: if asked for also those of GPUs under dcgm-exporter's names, which go nowhere else."""
        ours, config = self.families(), self.agent.config
        if not config.gpu.dcgm_names:
            return ours
        from tachoscope_node.gpu.dcgm import compat_names as dcgm_names  # with a table that few nodes need

        return [*ours, *dcgm_names.families(ours, config.node_name, self._started)]

    def _metrics(self, request: Request) -> Response:
        gzipped = "gzip" in request.accept_encoding
        headers = (("Content-Encoding", "gzip"),) if gzipped else ()
        return Response(200, CONTENT_TYPE_LATEST, self._exposition.page(gzipped=gzipped), headers)

    def _ranks(self, _: Request) -> Response:
        if self._ranks_page[0] != self.agent.ticks:  # one page for all who ask: slow readers may hold it for long
            self._ranks_page = self.agent.ticks, msgspec.json.encode({"ranks": self.agent.ranks.page()})
        return Response(200, "application/json", self._ranks_page[1], ())

    def _health(self, _: Request) -> Response:
        """Answer 200 whatever the GPUs' state: that is the content; whether the agent works is what the status says."""
        if self._health_page[0] != self.agent.ticks:
            self._health_page = self.agent.ticks, msgspec.json.encode(self.agent.health())
        return Response(200, "application/json", self._health_page[1], ())

    def _healthz(self, _: Request) -> Response:
        at = self.agent.ticked_at
        if at is not None and time.monotonic() - at > _STALLED_SECONDS:
            return _text(503, f"the spool was not read for {time.monotonic() - at:.0f} s")
        return _text(200, "ok")

    def _readyz(self, _: Request) -> Response:
        if self.agent.ticks == 0:
            return _text(503, "the spool has not been read yet")
        failing = self.agent.shipper.failing
        return _text(200, f"ok, but the store is behind: {failing}" if failing else "ok")


def _text(status: int, text: str) -> Response:
    return Response(status, "text/plain; charset=utf-8", f"{text}\n".encode(), ())


@contextlib.contextmanager
def signals(service: Service) -> Iterator[None]:
    """Stop the service on SIGTERM and SIGINT, reload it on SIGHUP, while the block runs."""
    handlers = {
        signal.SIGTERM: lambda *_: service.stop(),
        signal.SIGINT: lambda *_: service.stop(),
        signal.SIGHUP: lambda *_: service.reload(),
    }
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
