"""A fake metadata service: it speaks the three providers' protocols over HTTP, for machines that are in no cloud."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeMetadata:
    """What the service says. `action`: AWS's; `preempted`: Google's; `events`: Azure's."""

    def __init__(self) -> None:
        self.tokens: set[str] = set()
        self.asked: list[str] = []
        self.action: dict[str, str] | None = None
        self.preempted = False
        self.events: list[dict[str, object]] = []
        self.broken = False
        self.url = ""

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Return status and body as the provider's documentation says."""
        self.asked.append(f"{method} {path}")
        if self.broken:
            return 500, "oops"
        if path == "/latest/api/token":
            if method != "PUT" or not 1 <= int(headers.get("x-aws-ec2-metadata-token-ttl-seconds", "0")) <= 21600:
                return 400, ""
            self.tokens.add(token := f"token-{len(self.asked)}")
            return 200, token
        if path == "/latest/meta-data/spot/instance-action":
            if headers.get("x-aws-ec2-metadata-token") not in self.tokens:
                return 401, ""
            return (200, json.dumps(self.action)) if self.action else (404, "<html>not found</html>")
        if path == "/computeMetadata/v1/instance/preempted":
            return (200, "TRUE" if self.preempted else "FALSE") if headers.get("metadata-flavor") == "Google" else (403, "")
        if headers.get("metadata") != "true":
            return 400, '{"error": "Bad request. Required metadata header not specified"}'
        if path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
            return 200, "vm-0"
        if path == "/metadata/scheduledevents?api-version=2020-07-01":
            return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events})
        return 404, ""


@contextmanager
def fake_metadata() -> Iterator[FakeMetadata]:
    """Run the service for the length of the block."""
    fake = FakeMetadata()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body = fake.answer(self.command, self.path, headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_PUT = _do  # noqa: N815  # as the base class calls them

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
