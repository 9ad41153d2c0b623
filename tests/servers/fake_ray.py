"""A fake dashboard of a Ray cluster: it speaks the REST API of jobs and nodes as Ray 2.60 does, and has no cluster behind it.

https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html; benchmarks/recovery/on_ray.py asks a real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from http_serving import serving


@dataclass
class FakeRay:
    """`jobs`: what a GET of each returns; `nodes`: name and state by id; `submitted`: bodies of accepted submissions."""

    url: str = ""
    token: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)
    submitted: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, Any]:
        if self.token and token != f"Bearer {self.token}":
            return 401, "Unauthorized"
        if path == "/nodes?view=summary":
            summary = [{"hostname": name, "raylet": {"nodeId": key, "state": state}} for key, (name, state) in self.nodes.items()]
            return 200, {"result": True, "msg": "Node summary fetched.", "data": {"summary": summary}}
        if (method, path) == ("POST", "/api/jobs/"):
            return self._submit(json.loads(body))
        name, _, verb = path.removeprefix("/api/jobs/").partition("/")
        if name not in self.jobs:
            return 404, f"Job {name} does not exist"
        if (method, verb) == ("POST", "stop"):
            self.jobs[name] |= {"status": "STOPPED", "message": "Job was intentionally stopped."}
            return 200, {"stopped": True}
        return 200, self.jobs[name]

    def _submit(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = body["submission_id"]
        if name in self.jobs:
            return 500, f"Traceback (most recent call last):\nValueError: Job with submission_id {name} already exists.\n."
        self.submitted.append(body)
        self.jobs[name] = {"submission_id": name, "status": "PENDING", "message": "Job has not started yet.", "error_type": None}
        return 200, {"job_id": name, "submission_id": name}


@contextmanager
def running() -> Iterator[FakeRay]:
    fake = FakeRay()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code, body = fake.answer(self.command, self.path, self.headers.get("Authorization", ""), sent)
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    with serving(Handler) as fake.url:
        yield fake
