"""One exchange with a receiver of OTLP/HTTP: https://opentelemetry.io/docs/specs/otlp/#otlphttp.

The SDK's encoder makes the bytes, and the project's HTTP client sends them: opentelemetry-exporter-otlp-proto-http 1.45 takes any
answer from 200 to 399 for success, does not read `partial_success`, and its timeout is for one read of the socket, so that a
receiver that sends a byte now and then keeps it for ever. Imported only where OTLP is configured.
"""

from __future__ import annotations

import gzip
import os
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.util.re import parse_env_headers

from tachoscope_core.net.http_client import HttpError, HttpResponse, request

_ANSWER_BYTES = 64 << 10
"""Most of an answer that is read: an ExportMetricsServiceResponse is a number and a sentence."""
_MAY_BE_TRIED_AGAIN = frozenset({429, 502, 503, 504})


class TlsFiles(NamedTuple):
    """PEM files: of those who may sign the receiver's certificate (empty: the system's), and our own certificate and key."""

    ca: str = ""
    cert: str = ""
    key: str = ""


class Result(NamedTuple):
    """What became of a push. `why` it failed, empty: it did not; of one that did not, points that were rejected, and a message."""

    why: str = ""
    rejected: int = 0
    message: str = ""
    may_be_tried_again: bool = False
    retry_after_seconds: float = 0.0


class Receiver:
    """A receiver of metrics.

    Attributes:
        url: with path. headers: sent with each push.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str], compressed: bool, files: TlsFiles) -> None:
        self.url = url
        self.headers = headers
        own = {"Content-Type": "application/x-protobuf", **({"Content-Encoding": "gzip"} if compressed else {})}
        self._sent = {**own, **headers}
        self._compressed = compressed
        self._files = files
        self._tls: ssl.SSLContext | None = None
        self._tls_versions: list[int] = []

    def encoded(self, data: MetricsData) -> bytes:
        """Return the protobuf body of a push, compressed by gzip if that is asked for."""
        body: bytes = encode_metrics(data).SerializeToString()
        return gzip.compress(body) if self._compressed else body

    def send(self, body: bytes, seconds: float) -> Result:
        """Send a body, and return what became of it within the time."""
        try:
            answer = request(
                self.url,
                seconds=max(seconds, 0.0),
                most_bytes=_ANSWER_BYTES,
                body=body,
                headers=self._sent,
                proxies=True,
                tls=self._context(),
            )
        except (HttpError, OSError) as error:
            return Result(str(error) or type(error).__name__)
        if not 200 <= answer.status < 300:
            tried_again = answer.status in _MAY_BE_TRIED_AGAIN
            why = f"answered {answer.status} {answer.reason[:80]}".strip()
            return Result(why, may_be_tried_again=tried_again, retry_after_seconds=_retry_after(answer))
        return _success(answer)

    def _context(self) -> ssl.SSLContext | None:
        """Return the TLS context, made again when a file changes, as certificates are renewed; OSError for an unusable file."""
        if not self.url.startswith("https:"):
            return None
        versions = [os.stat(path).st_mtime_ns for path in self._files if path]
        if self._tls is None or versions != self._tls_versions:
            context = ssl.create_default_context(cafile=self._files.ca or None)
            if self._files.cert:
                context.load_cert_chain(self._files.cert, self._files.key or None)
            self._tls, self._tls_versions = context, versions
        return self._tls


def headers_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the environment gives to exporters of metrics (`name=value,name=value`, percent-encoded)."""
    said = environ.get("OTEL_EXPORTER_OTLP_METRICS_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS") or ""
    return dict(parse_env_headers(said, liberal=True))


def _success(answer: HttpResponse) -> Result:
    """Read an answer of success: it may reject points, or come from another server, such as a login page."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not answer.content:
        return Result()
    if kind == "application/json":
        return _success_in_json(answer.content)
    if kind not in {"", "application/x-protobuf", "application/octet-stream"}:
        return Result(f"answered with {kind[:60]}")
    try:
        partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    except DecodeError:
        return Result("answered with bytes that are not an ExportMetricsServiceResponse")
    return Result(rejected=partial.rejected_data_points, message=partial.error_message)


class _Partial(msgspec.Struct):
    rejected: int = msgspec.field(default=0, name="rejectedDataPoints")
    message: str = msgspec.field(default="", name="errorMessage")


class _Response(msgspec.Struct):
    partial: _Partial = msgspec.field(default_factory=_Partial, name="partialSuccess")


def _success_in_json(body: bytes) -> Result:
    """Read the answer of receivers that answer in JSON whatever they are asked in."""
    try:
        # Not strict: protobuf's JSON writes 64-bit numbers as strings.
        partial = msgspec.json.decode(body, type=_Response, strict=False).partial
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Result("answered with JSON that is not an ExportMetricsServiceResponse")
    return Result(rejected=partial.rejected, message=partial.message)


def _retry_after(answer: HttpResponse) -> float:
    """Return the seconds that a Retry-After header asks for: a number or a date (RFC 9110, section 10.2.3)."""
    value = answer.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return 0.0
