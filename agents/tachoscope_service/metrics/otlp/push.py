"""The push of metrics by OTLP/HTTP: settings, and the thread that pushes.

Metrics are cumulative, so each push sends the newest values and nothing is queued: a receiver that is away costs a gap in the
series and no memory. Knows nothing of where families come from. What it needs of OpenTelemetry is imported when a push is made.
"""

from __future__ import annotations

import math
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec

from tachoscope_service.metrics.family import Family
from tachoscope_service.metrics.otlp.resource import missing
from tachoscope_service.metrics.otlp.resource import resource_attributes as resource_attributes

Outcome = Literal["ok", "partial", "failed"]

_LEAST_TRY_SECONDS = 0.5
"""In less time nobody answers, and why the tries before failed would be lost."""
_RETRY_AFTER_LIMIT_SECONDS = 300.0
"""Longest that a receiver's Retry-After is heeded: one wrong answer must not silence a node for a day."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
_WAYS_OUT = {401: "check otlp.headers", 403: "check otlp.headers", 404: "check the path of otlp.endpoint"}


class OtlpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and how metrics are pushed.

    Attributes:
        endpoint: URL of the receiver, required; `/v1/metrics` is appended to one without a path.
        interval_seconds: from push to push. timeout_seconds: of one push with its retries.
        headers: sent with each push, after those of OTEL_EXPORTER_OTLP_HEADERS; secrets, never shown.
        ca_file: PEM file of those who may sign the receiver's certificate.
        cert_file, key_file: PEM files of our own certificate. resource: attributes that win over those found.
    """

    endpoint: str = ""
    interval_seconds: float = 15.0
    timeout_seconds: float = 10.0
    headers: dict[str, str] = {}
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    compression: Literal["gzip", "none"] = "gzip"
    resource: dict[str, str] = {}

    def __repr__(self) -> str:
        """All but secrets: headers by name, and the endpoint without user and query."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown |= {"endpoint": _display_url(self.endpoint), "headers": dict.fromkeys(self.headers, "***")}
        return f"OtlpSettings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def faults(settings: OtlpSettings) -> list[str]:
    """Return every fault of the settings, each with its key, its value unless secret, and the way out."""
    found = _endpoint_faults(settings.endpoint)
    interval, timeout = settings.interval_seconds, settings.timeout_seconds
    for name, seconds in (("interval_seconds", interval), ("timeout_seconds", timeout)):
        if not 0 < seconds < math.inf:
            found.append(f"{name}: {seconds} is not above 0: give seconds")
    if 0 < interval <= timeout < math.inf:
        found.append(f"timeout_seconds: {timeout} is not below interval_seconds, {interval}: a push must end before the next")
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(settings, name)
        if path and not (os.path.isfile(path) and os.access(path, os.R_OK)):
            found.append(f"{name}: {path!r} is not a file that can be read: give the path of a PEM file")
    if settings.key_file and not settings.cert_file:
        found.append(f"key_file: {settings.key_file!r} has no certificate: give cert_file too")
    if settings.compression not in ("gzip", "none"):
        found.append(f"compression: {settings.compression!r} is neither gzip nor none")
    return found + header_faults(settings.headers)


def header_faults(headers: Mapping[str, str]) -> list[str]:
    """Return every fault of headers that are sent with a request; none shows a value."""
    found = []
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            found.append(f"headers: {name!r} is not the name of a header: give letters, digits and hyphens")
        if not _HEADER_VALUE.fullmatch(value):
            found.append(
                f"headers.{name}: its value (not shown) has a line break, other than ASCII or spaces around it: remove them"
            )
    return found


def _endpoint_faults(endpoint: str) -> list[str]:
    example = "give a URL such as http://collector:4318"
    try:
        url = urlsplit(endpoint)
        plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
        usable = plain and url.scheme in {"http", "https"} and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return [f"endpoint: {_display_url(endpoint)!r} is not a URL: {example}"]
    if not usable:
        return [f"endpoint: {_display_url(endpoint)!r} is not an http or https URL with a host: {example}"]
    if url.username is not None or url.password is not None:
        return [
            f"endpoint: {_display_url(endpoint)!r} has a user or password (not shown): give them as otlp.headers, Authorization"
        ]
    return []


def _url(endpoint: str) -> SplitResult:
    url = urlsplit(endpoint)
    return url if url.path.strip("/") else url._replace(path="/v1/metrics")


def _display_url(endpoint: str) -> str:
    """Return the endpoint without what may be secret."""
    address, query, _ = endpoint.partition("?")
    scheme, colon, rest = address.rpartition("://")
    return f"{scheme}{colon}{rest.rpartition('@')[2]}{query and '?***'}"


class OtlpPush:
    """Pushes families to a receiver, from a daemon thread of its own, and never raises once it is made.

    Args:
        settings: without faults.
        families: gives the newest values; called from the thread.
        resource: attributes of what the metrics are about; those of the settings win.
        start_time_seconds: Unix time of the agent's start, since when its own counters count.
        boot_time_seconds: Unix time since when all other counters count; None: the kernel says.
        log: takes one line when the outcome changes.

    Attributes:
        exports: pushes so far by outcome.

    Raises:
        TachoscopeError: if OpenTelemetry is not installed.
    """

    def __init__(
        self,
        settings: OtlpSettings,
        *,
        families: Callable[[], list[Family]],
        resource: Mapping[str, str],
        start_time_seconds: float,
        log: Callable[[str], None],
        boot_time_seconds: float | None = None,
    ) -> None:
        try:
            from tachoscope_service.metrics.otlp import exchange, points
        except ImportError:
            raise missing() from None
        self.exports: dict[str, int] = dict.fromkeys(get_args(Outcome), 0)
        self._settings = settings
        self._families = families
        self._log = log
        boot = points.boot_time() if boot_time_seconds is None else boot_time_seconds
        self._points = points.Points({**resource, **settings.resource}, start_time_seconds, boot or start_time_seconds)
        self._receiver = exchange.Receiver(
            _url(settings.endpoint).geturl(),
            headers={**exchange.headers_of(os.environ), **settings.headers},
            compressed=settings.compression == "gzip",
            files=exchange.TlsFiles(settings.ca_file, settings.cert_file, settings.key_file),
        )
        self._one_at_a_time = threading.Lock()
        self._outcome = ""
        self._not_before = 0.0
        self._stopping = threading.Event()
        self._deadline = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Push at every interval, starting at a random moment, so that nodes started together do not push together."""
        self._thread = threading.Thread(target=self._run, name="tachoscope-otlp", daemon=True)
        self._thread.start()

    def stop(self, deadline_seconds: float) -> None:
        """Push once more and stop; return within the deadline even if the receiver does not answer."""
        self._deadline = time.monotonic() + deadline_seconds
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(max(deadline_seconds, 0.0))

    def push(self) -> Outcome:
        """Push the newest values now, and wait for the outcome."""
        return self._push(self._settings.timeout_seconds)

    def _run(self) -> None:
        interval = self._settings.interval_seconds
        delay = random.uniform(0, interval)  # noqa: S311  # no secret
        while not self._stopping.wait(delay):
            began = time.monotonic()
            self.push()
            delay = max(began + interval, self._not_before) - time.monotonic()
        left = min(self._deadline - time.monotonic(), self._settings.timeout_seconds)
        if left > 0:
            self._push(left)

    def _push(self, limit_seconds: float) -> Outcome:
        with self._one_at_a_time:
            outcome: Outcome
            stopped = self._stopping.is_set()
            try:
                outcome, why = self._export(limit_seconds)
            except Exception as error:  # whatever it is, the thread and the agent go on
                outcome, why = "failed", f"{type(error).__name__}: {error}"
            self.exports[outcome] += 1
            interrupted = outcome == "failed" and self._stopping.is_set() and not stopped
            if outcome != self._outcome and not interrupted:
                self._outcome = outcome
                self._say(outcome, why)
            return outcome

    def _export(self, limit_seconds: float) -> tuple[Outcome, str]:
        deadline = time.monotonic() + limit_seconds
        data, count = self._points.convert(self._families(), time.time_ns())
        body = self._receiver.encoded(data)
        pause = 1.0
        while True:
            result = self._receiver.send(body, deadline - time.monotonic())
            wait = result.retry_after_seconds or pause * random.uniform(0.8, 1.2)  # noqa: S311  # no secret
            left = deadline - time.monotonic() - wait
            if not result.may_be_tried_again or left < _LEAST_TRY_SECONDS or self._stopping.wait(wait):
                break
            pause *= 2.0
        self._not_before = time.monotonic() + min(result.retry_after_seconds, _RETRY_AFTER_LIMIT_SECONDS)
        if result.why:
            return "failed", result.why
        return ("partial", f"{result.rejected} of {count} points: {result.message}") if result.rejected else ("ok", "")

    def _say(self, outcome: Outcome, why: str) -> None:
        for secret in filter(None, self._receiver.headers.values()):  # a receiver may answer with what it was sent
            why = why.replace(secret, "***")
        url, every = _display_url(self._receiver.url), f"every {self._settings.interval_seconds:g} s"
        lines = {
            "ok": f"OTLP: metrics go to {url} {every}",
            "partial": f"OTLP: {url} rejects metrics: {why}",
            "failed": f"OTLP: could not push metrics to {url}: {why}; it is tried again {every}",
        }
        hint = next((f" ({way})" for status, way in _WAYS_OUT.items() if why.startswith(f"answered {status} ")), "")
        line = "".join(char if char.isprintable() else " " for char in lines[outcome] + hint)
        try:
            self._log(line[:400])
        except Exception:
            return  # a full disk under the log must not end the push
