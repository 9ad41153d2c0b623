"""The HTTP side of the OTLP push: a requests session that keeps what the SDK's exporter does not look at, and bounds what it
leaves open.

Of opentelemetry-exporter-otlp-proto-http 1.45: it takes any answer from 200 to 399 for success, never reads the answer's body
(`partial_success`), and its timeout holds for one read of the socket, so that a receiver which sends a byte now and then, or
an endless body, keeps it for ever. Imported only where OTLP is configured.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import msgspec
import requests
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from requests.adapters import HTTPAdapter

_ANSWER_BYTES = 64 << 10
"""Most of an answer that is read: an ExportMetricsServiceResponse is a number and a sentence."""


class NotOtlpError(Exception):
    """An answer that says success, but not in the form of OTLP: some other server, such as a login page."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The last answer of a receiver, or the error in its place."""

    status: int = 0
    reason: str = ""
    content_type: str = ""
    retry_after_seconds: float = 0.0
    body: bytes = b""
    error: Exception | None = None


class BoundedSession(requests.Session):
    """A session of one user at a time that notes the last answer, follows no redirect, and can be cut off.

    Attributes:
        answer: to the last request; None if none was made since `begin`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answer: Answer | None = None
        self._cut_off = False
        self._adapter = _BoundedAdapter()
        self.mount("http://", self._adapter)
        self.mount("https://", self._adapter)
        self.auth = _as_it_is  # else requests takes what ~/.netrc has for the host in place of our Authorization
        # The body is read only up to a limit, so it must not be one that grows when unpacked.
        self.headers["Accept-Encoding"] = "identity"
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # a jar would grow with what a receiver sets

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Make a request and note its answer or error.

        The SDK tries again with what is left of its time, which may be nothing: then the answer before stands.
        """
        if kwargs.get("timeout", 1.0) <= 0.0:
            self.answer = self.answer or Answer(error=requests.exceptions.Timeout())
            raise requests.exceptions.Timeout
        try:
            response = self._request(*args, **kwargs)
        except Exception as error:
            self.answer = Answer(error=error)
            raise
        headers = response.headers
        self.answer = Answer(
            response.status_code,
            response.reason or "",
            headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            _retry_after(headers),
            response.content,
        )
        return response

    def _request(self, *args: Any, **kwargs: Any) -> requests.Response:
        if self.verify is not True:  # else requests prefers $REQUESTS_CA_BUNDLE to what the session was told
            kwargs["verify"] = self.verify
        try:
            if not self._cut_off:
                response = super().request(*args, **kwargs)
        except Exception:
            if not self._cut_off:  # else whatever broke did so because the connection was ended under it
                raise
        if self._cut_off:  # the end of the connection can look like the end of the headers, and so like an answer
            raise requests.exceptions.Timeout
        return response

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002
        """Follow nothing: a redirected POST would arrive as a GET without the metrics."""
        return

    def begin(self) -> None:
        """Forget the last answer, and that requests were cut off."""
        self.answer, self._cut_off = None, False

    def cut_off(self) -> None:
        """End a request that is under way in another thread: it and those that follow fail there, until `begin`."""
        self._cut_off = True
        self._adapter.cut_off()


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


class _BoundedAdapter(HTTPAdapter):
    _connection: Any = None

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self._watch(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        return self._watch(super().proxy_manager_for(*args, **kwargs))

    def _watch(self, manager: Any) -> Any:
        """Let the manager's connections be known here: no public way leads from a request under way to its socket."""
        adapter = self

        def watched(pool: Any) -> Any:
            class Connection(pool.ConnectionCls):  # type: ignore[misc]
                def connect(self) -> None:
                    adapter._connection = self
                    super().connect()

            return type(pool.__name__, (pool,), {"ConnectionCls": Connection})

        classes = {scheme: watched(pool) for scheme, pool in manager.pool_classes_by_scheme.items()}
        manager.pool_classes_by_scheme = classes
        return manager

    def cut_off(self) -> None:
        sock = getattr(self._connection, "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs["stream"] = True
        response = super().send(request, *args, **kwargs)
        try:
            body = response.raw.read(_ANSWER_BYTES + 1, decode_content=False)
        except Exception as error:
            response.close()
            raise requests.exceptions.ConnectionError(error) from error  # as the SDK knows it
        if len(body) > _ANSWER_BYTES:
            response.close()  # the connection still holds the rest
        response._content = body[:_ANSWER_BYTES]
        response._content_consumed = True
        return response


def rejected(answer: Answer) -> tuple[int, str]:
    """Return how many points the receiver rejected though it answered with success, and what it says.

    Raises:
        NotOtlpError: if the answer is in no form that a receiver of OTLP may answer in.
    """
    if not answer.body:
        return 0, ""
    if answer.content_type == "application/json":
        return _rejected_json(answer.body)
    if answer.content_type not in {"", "application/x-protobuf", "application/octet-stream"}:
        raise NotOtlpError(f"answered with {answer.content_type[:60]}")
    try:
        partial = ExportMetricsServiceResponse.FromString(answer.body).partial_success
    except DecodeError:
        raise NotOtlpError("answered with bytes that are not an ExportMetricsServiceResponse") from None
    return partial.rejected_data_points, partial.error_message


class _Partial(msgspec.Struct):
    rejected: int = msgspec.field(default=0, name="rejectedDataPoints")
    message: str = msgspec.field(default="", name="errorMessage")


class _Response(msgspec.Struct):
    partial: _Partial = msgspec.field(default_factory=_Partial, name="partialSuccess")


def _rejected_json(body: bytes) -> tuple[int, str]:
    """Read the answer of receivers that answer in JSON whatever they are asked in."""
    try:
        answer = msgspec.json.decode(body, type=_Response, strict=False)  # protobuf's JSON writes 64-bit numbers as strings
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise NotOtlpError("answered with JSON that is not an ExportMetricsServiceResponse") from None
    return answer.partial.rejected, answer.partial.message


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a Retry-After header asks for: a number or a date (RFC 9110, section 10.2.3)."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def cause(error: BaseException) -> str:
    """Return why a request failed, in words that hold nothing of the request: its headers may be secrets."""
    chain = [error]
    while len(chain) < 10:
        last = chain[-1]
        inner = getattr(last, "reason", None)
        inner = inner if isinstance(inner, BaseException) else last.__cause__ or last.__context__
        inner = inner or next((part for part in last.args if isinstance(part, BaseException)), None)
        if inner is None or inner in chain:
            break
        chain.append(inner)
    for part in reversed(chain):
        if isinstance(part, requests.exceptions.Timeout | TimeoutError):
            return "no answer in time"
        if isinstance(part, OSError) and not isinstance(part, requests.exceptions.RequestException):
            return str(getattr(part, "verify_message", "") or part.strerror or type(part).__name__)
    return type(chain[-1]).__name__
