"""A webhook receiver on loopback: what Alertmanager tells it, and when."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True)
class Arrival:
    """One alert of one notification.

    Attributes:
        time: Unix seconds at which it came. receiver: for whom, by Alertmanager's routes. status: firing or resolved.
        starts_at, ends_at: Unix seconds, by Prometheus: the evaluation that it fired and ended in.
        group: key of its group, by which receivers such as PagerDuty tell incidents apart.
    """

    time: float
    receiver: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    ends_at: float
    group: str = ""

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")


class Receiver:
    """Listens from the start of the block to its end.

    Args:
        port: 0: any that is free.
    """

    def __init__(self, port: int = 0) -> None:
        self._arrivals: list[Arrival] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def arrivals(self) -> list[Arrival]:
        """Return what came so far, in its order."""
        with self._lock:
            return list(self._arrivals)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        came = self._came

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                try:
                    came(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))))
                    self.send_response(200)
                except (ValueError, KeyError, TypeError):
                    self.send_response(400)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library names it
                pass

        return Handler

    def _came(self, notification: dict[str, Any]) -> None:
        now = time.time()
        found = [
            Arrival(
                now,
                notification["receiver"],
                alert["status"],
                alert["labels"],
                alert["annotations"],
                datetime.fromisoformat(alert["startsAt"]).timestamp(),
                datetime.fromisoformat(alert["endsAt"]).timestamp(),
                notification.get("groupKey", ""),
            )
            for alert in notification["alerts"]
        ]
        with self._lock:
            self._arrivals += found
