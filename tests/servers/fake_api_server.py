"""A fake API server of Kubernetes: it speaks the real HTTP of lists (pages, tokens, statuses), of single objects and of patches of
nodes, and has no cluster behind it.

https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from http_serving import serving

TOKEN = "a-token-of-the-fake"


@dataclass
class FakeApiServer:
    """Lists by path, such as `/api/v1/namespaces/ml/pods`; others are not installed (404). `asked`: each request as it came.

    `bodies`: what was sent to create objects, which are added to the list.
    """

    url: str = ""
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    page: int = 2
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def kubeconfig(self, file: Path) -> Path:
        named = {
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": TOKEN}}],
        }
        context = {"contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}], "current-context": "fake"}
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **named, **context}))
        return file

    def answer(self, method: str, path: str, query: dict[str, list[str]], token: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if token != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        if path in self.forbidden:
            return _status(403, "Forbidden")
        if method == "POST" and path in self.lists:
            return self._create(path, json.loads(body))
        if path not in self.lists:
            return self._object(method, path)
        since = int(query.get("continue", ["0"])[0])
        until = since + min(self.page, int(query.get("limit", ["500"])[0]))
        labels, node = (query.get(name, [""])[0] for name in ("labelSelector", "fieldSelector"))
        items = [one for one in self.lists[path] if _selected(one, labels) and _is_on(one, node)]
        more = {"continue": str(until), "remainingItemCount": len(items) - until} if until < len(items) else {}
        # A typed list leaves out the kind of its items.
        bare = [{key: value for key, value in one.items() if key not in {"kind", "apiVersion"}} for one in items[since:until]]
        version, kind = (items[0].get("apiVersion", "v1"), items[0].get("kind", "")) if items else ("v1", "")
        return 200, {"apiVersion": version, "kind": f"{kind}List", "metadata": {"resourceVersion": "1", **more}, "items": bare}

    def _create(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if any(one["metadata"]["name"] == body["metadata"]["name"] for one in self.lists[path]):
            return _status(409, "AlreadyExists")
        self.bodies.append(body)
        self.lists[path].append(body)
        return 201, body

    def _object(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        found = self.object_at(path)
        if found is None:
            return _status(404, "NotFound")
        if method == "DELETE":
            self.lists[path.rpartition("/")[0]].remove(found)
        return 200, found

    def patch(self, path: str, body: dict[str, Any], kind: str, token: str) -> tuple[int, dict[str, Any]]:
        """Change a node, or its status, as the API server does: taints as a whole, conditions by their type."""
        if token != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        node = self.object_at(path.removesuffix("/status"))
        if node is None or path in self.forbidden:
            return _status(404 if node is None else 403, "NotFound")
        version = body.get("metadata", {}).get("resourceVersion", node["metadata"]["resourceVersion"])
        if version != node["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        if kind == "application/merge-patch+json" and not path.endswith("/status"):
            node["spec"] |= body["spec"]
        elif kind == "application/strategic-merge-patch+json" and path.endswith("/status"):
            types = {one["type"] for one in body["status"]["conditions"]}
            kept = [one for one in node["status"]["conditions"] if one["type"] not in types]
            node["status"]["conditions"] = [*kept, *body["status"]["conditions"]]
        else:
            return _status(415, "UnsupportedMediaType")
        node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)
        return 200, node

    def object_at(self, path: str) -> dict[str, Any] | None:
        folder, _, name = path.rpartition("/")
        return next((one for one in self.lists.get(folder, []) if one["metadata"]["name"] == name), None)


def _selected(one: dict[str, Any], selector: str) -> bool:
    labels = one["metadata"].get("labels", {})
    return all(labels.get(name) == value for name, _, value in (part.partition("=") for part in selector.split(",") if part))


def _is_on(one: dict[str, Any], selector: str) -> bool:
    """Return whether a pod is on the node that a field selector names; no other field is known."""
    field_name, _, node = selector.partition("=")
    if field_name not in {"", "spec.nodeName"}:
        raise ValueError(f"the fake does not know the field selector {selector}")
    return not field_name or one["spec"]["nodeName"] == node


def _status(code: int, reason: str) -> tuple[int, dict[str, Any]]:
    return code, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code}


@contextmanager
def running() -> Iterator[FakeApiServer]:
    fake = FakeApiServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            fake.asked.append((self.command, url.path))
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code, body = fake.answer(self.command, url.path, parse_qs(url.query), self.headers.get("Authorization", ""), sent)
            self._send(code, body)

        def do_PATCH(self) -> None:
            fake.asked.append((self.command, self.path))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kind = self.headers.get("Content-Type", "")
            self._send(*fake.patch(self.path, body, kind, self.headers.get("Authorization", "")))

        def _send(self, code: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    with serving(Handler) as fake.url:
        yield fake
