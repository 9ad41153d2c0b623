"""The collector `servers`: looks at inference servers, each in a thread of its own, so that none waits for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import serving as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.net.http_client import HttpError
from tachoscope_core.servers import catalogue, metrics_page
from tachoscope_core.servers.snapshot import Snapshot
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.config.inference_servers import Server
from tachoscope_node.services.scraped_metrics import METRICS, MetricPoint, Unexplained, families, points
from tachoscope_service.common.http_get import check, get
from tachoscope_service.metrics.family import Family

ANSWER_SECONDS = 5.0
MOST_BYTES = 4 << 20
"""A page of vLLM 0.32 has 50 KB for each engine."""
MOST_MODELS = 32
"""A server that reports more has no series: each model has up to 90."""


class Watch:
    """Looks at one server again and again.

    Attributes:
        fault: why the last look failed; nothing: it did not.
    """

    def __init__(self, server: Server, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.server = server
        self.fault = ""
        self._log = log
        self._clock = clock
        self._kind = None if server.kind == "auto" else catalogue(server.kind)
        self._unexplained: Unexplained = {}
        self._last: tuple[float, list[MetricPoint]] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tachoscope-server-{server.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def points(self) -> list[MetricPoint]:
        """Return what the last look found; before the first nothing, and of one that is too long ago only that it is."""
        if self._last is None:
            return []
        at, found = self._last
        stale = self._clock() - at > 2 * self.server.interval_seconds + self._longest_look()
        return [self._up(up=False)] if stale else found

    def _longest_look(self) -> float:
        return ANSWER_SECONDS + (self._check_seconds() if self.server.check_url else 0.0)

    def _check_seconds(self) -> float:
        """Return how long a check may take: a request waits its turn where a page does not."""
        return max(ANSWER_SECONDS, self.server.interval_seconds)

    def _up(self, *, up: bool) -> MetricPoint:
        return names.SERVER_UP, ((self.server.name,), float(up))

    def _run(self) -> None:
        while not self._stop.is_set():
            began = self._clock()
            self.poll()
            self._stop.wait(max(began + self.server.interval_seconds - self._clock(), 0.1))

    def poll(self) -> None:
        """Look once. Does not raise: whatever the server does is a fault of the look."""
        try:
            found = points(self.server.name, self._read(), self._unexplained)
        except (HttpError, TachoscopeError) as error:
            self._done([self._up(up=False)], str(error))
        except Exception as error:  # a page that nobody thought of ends this look, not all to come
            self._done([self._up(up=False)], f"a fault of the agent: {type(error).__name__}: {error}")
        else:
            fault = self._check()
            self._done([self._up(up=not fault), *found], fault)

    def _read(self) -> Snapshot:
        server = self.server
        seconds = min(ANSWER_SECONDS, server.interval_seconds)
        page = get(server.url, seconds=seconds, most_bytes=MOST_BYTES, headers=server.headers)
        text = page.decode(errors="replace")
        look = metrics_page.read(text, time.time(), server=self._kind)
        if not look.engines and (other := metrics_page.server_of(text)) and other is not self._kind:
            raise TachoscopeError(f"its page is {other.title}'s, not of the kind {server.kind}")
        models = {engine.model for engine in look.engines}
        if len(models) > MOST_MODELS:
            raise TachoscopeError(f"it reports {len(models)} models, more than {MOST_MODELS}")
        return look

    def _check(self) -> str:
        """Return why the server did not do what it was asked to; nothing if it did, or is not to be asked."""
        server = self.server
        if not server.check_url:
            return ""
        try:
            check(
                server.check_url,
                seconds=self._check_seconds(),
                most_bytes=MOST_BYTES,
                body=server.check_body,
                headers=server.headers,
            )
        except HttpError as error:
            return f"its page is there, and its check failed: {error}"
        return ""

    def _done(self, found: list[MetricPoint], fault: str) -> None:
        if fault != self.fault:
            self._log(f"server {self.server.name}: failed: {fault}" if fault else f"server {self.server.name}: answers again")
        self.fault = fault
        self._last = self._clock(), found

    def close(self) -> None:
        """Look no more; a look that goes on ends by itself, within its time."""
        self._stop.set()


class ServersCollector:
    """What the servers said at the last look. A server that is down is not a collector failure: see `tachoscope_server_up`."""

    name: Final = "servers"
    interval_seconds: Final = 1.0
    metrics: tuple[Metric, ...] = METRICS

    def __init__(self, servers: Sequence[Server], log: Callable[[str], None]) -> None:
        self.watches = [Watch(server, log) for server in servers]
        for watch in self.watches:
            watch.start()

    def collect(self) -> list[Family]:
        """Return what is known. Raises NoDataError before the first look has ended."""
        found = [point for watch in self.watches for point in watch.points()]
        if not found:
            raise NoDataError
        return families(found)

    def close(self) -> None:
        """Look no more."""
        for watch in self.watches:
            watch.close()
