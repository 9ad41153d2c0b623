"""A receiver of OTLP/HTTP metrics that answers as it is told: a real HTTP server on loopback."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

Behaviour = Callable[["_Handler"], None]


def answers(status: int, body: bytes = b"", content_type: str = "application/x-protobuf", **headers: str) -> Behaviour:
    def answer(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def rejects(points: int, message: str) -> Behaviour:
    partial = ExportMetricsPartialSuccess(rejected_data_points=points, error_message=message)
    return answers(200, ExportMetricsServiceResponse(partial_success=partial).SerializeToString())


def waits(seconds: float) -> Behaviour:
    """Answer with success, but late."""

    def answer(handler: _Handler) -> None:
        if not handler.server.closing.wait(seconds):
            accepts(handler)

    return answer


def drips(handler: _Handler) -> None:
    """Send a header a byte at a time, for ever: no single read of it times out."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.closing.wait(0.1):
        handler.wfile.write(b"x")


def never_ends(handler: _Handler) -> None:
    """Answer with a body without an end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\r\n")
    while not handler.server.closing.is_set():
        handler.wfile.write(b"\xff" * 65536)


def closes(handler: _Handler) -> None:
    handler.close_connection = True


def is_no_http(handler: _Handler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\x00\x01garbage\r\n\r\n")
    handler.close_connection = True


accepts = answers(200, ExportMetricsServiceResponse().SerializeToString())


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviours: tuple[Behaviour, ...]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviours = list(behaviours) or [accepts]
        self.closing = threading.Event()
        self.arrived = threading.Condition()
        self.requests: list[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        server = self.server
        with server.arrived:
            behaviour = server.behaviours.pop(0) if len(server.behaviours) > 1 else server.behaviours[0]
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append((self.path, headers, ExportMetricsServiceRequest.FromString(body)))
            server.arrived.notify_all()
        try:
            behaviour(self)
        except OSError:
            self.close_connection = True  # the sender went away

    def handle(self) -> None:
        with suppress(ssl.SSLError, ConnectionError):  # a sender that does not trust us
            super().handle()

    def log_message(self, *args: object) -> None:
        pass


class FakeReceiver:
    """Answers requests by the behaviours in their order, the last one from then on; accepts all if there are none."""

    def __init__(self, *behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self._server = _Server(behaviours)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> FakeReceiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.closing.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def requests(self) -> list[tuple[str, dict[str, str], ExportMetricsServiceRequest]]:
        """Path, headers (names in lower case) and content of each request."""
        return self._server.requests

    def wait_for(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many requests arrived."""
        with self._server.arrived:
            assert self._server.arrived.wait_for(lambda: len(self.requests) >= count, seconds), f"{len(self.requests)} of {count}"


def metrics_of(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    """Return the metrics of a request by name; none may be there twice."""
    metrics = [metric for one in request.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
    assert len({metric.name for metric in metrics}) == len(metrics)
    return {metric.name: metric for metric in metrics}


def attributes_of(holder: object) -> dict[str, str]:
    """Return the attributes of a point or a resource."""
    return {pair.key: pair.value.string_value for pair in holder.attributes}


def points_of(metric: Metric) -> Iterator[object]:
    """Return the points of a metric of any type."""
    yield from getattr(metric, metric.WhichOneof("data")).data_points
