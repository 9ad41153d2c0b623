"""A fake Grafana: the part of its documented HTTP API that boards are pushed by, without a Grafana behind it.

https://grafana.com/docs/grafana/latest/developers/http_api/dashboard/, .../folder/, .../folder_dashboard_search/,
.../dashboard_versions/. What it refuses, it refuses as these pages say: 401, 403, 404, 409 and 412 with `status`.
With `v2` it has the API of resources too, of Grafana 13: metadata with annotations, a resourceVersion that an update must name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from http_serving import serving

Json = dict[str, Any]
TOKEN = "glsa_a-token-of-the-fake_1234"
V2 = "/apis/dashboard.grafana.app/v2"
NAMESPACE = "org-7"


@dataclass
class Kept:
    """A board that it has: the versions, each as `{version, message, createdBy}`, and where it is."""

    dashboard: Json
    folder: str
    versions: list[Json]
    provisioned: bool = False
    by: str = "sa-push"


@dataclass
class FakeGrafana:
    """Boards by uid, folders by uid. `asked`: method and path of each request. `tokens`: what came as Authorization.

    Attributes:
        page_below_apis: as a Grafana answers that has no such API.
        refuse: the answer to every POST of a board. redirect: where every request is sent. lists_versions: as Grafana 11 does, else
            as those before. forbidden: of the token. before_post: called before a board is saved.
    """

    url: str = ""
    boards: dict[str, Kept] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    refuse: tuple[int, Any] | None = None
    redirect: str = ""
    raw: bytes = b""
    lists_versions: bool = True
    forbidden: bool = False
    before_post: Any = None
    v2: bool = False
    page_below_apis: bool = False
    resources: dict[str, Json] = field(default_factory=dict)

    def save_by_hand(self, uid: str, by: str = "admin") -> None:
        """Change a board as a person does in Grafana."""
        kept = self.boards[uid]
        version = kept.dashboard["version"] + 1
        kept.dashboard |= {"version": version, "title": "changed"}
        kept.by = by
        kept.versions.insert(0, {"version": version, "message": "", "createdBy": by})

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Json, token: str) -> tuple[int, Any]:
        if token != f"Bearer {TOKEN}":
            return 401, {"message": f"Invalid API key {token}"}
        if self.forbidden:
            return 403, {"message": "You'll need additional permissions to perform this action. Permissions needed: folders:read"}
        if path == "/api/folders":
            return self._folders(query) if method == "GET" else self._new_folder(body)
        if path == "/api/search":
            return self._search(query)
        if path == "/api/frontend/settings":
            return 200, {"namespace": NAMESPACE}
        if path.startswith(V2):
            return self._resource(method, path.removeprefix(V2), body) if self.v2 else (404, {"message": "Not found"})
        if path == "/api/dashboards/db" and method == "POST":
            return self._save(body)
        if path.startswith("/api/dashboards/uid/"):
            uid, _, rest = path.removeprefix("/api/dashboards/uid/").partition("/")
            if uid not in self.boards:
                return 404, {"message": "Dashboard not found"}
            return self._versions(uid, query) if rest == "versions" else self._board(uid)
        return 404, {"message": "Not found"}

    def _resource(self, method: str, path: str, body: Json) -> tuple[int, Any]:
        if not path:
            return 200, {"kind": "APIResourceList", "resources": [{"name": "dashboards", "kind": "Dashboard"}]}
        uid = path.removeprefix(f"/namespaces/{NAMESPACE}/dashboards").lstrip("/")
        if method != "GET" and self.before_post:
            self.before_post()
        there = self.resources.get(uid or body["metadata"]["name"])
        if method == "GET":
            return (200, there) if there else (404, {"kind": "Status", "reason": "NotFound", "message": "not found"})
        if (method == "PUT") != (there is not None):
            return 409, {"kind": "Status", "reason": "AlreadyExists", "message": "already exists"}
        if there and body["metadata"].get("resourceVersion") != there["metadata"]["resourceVersion"]:
            return 409, {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}
        self.save_resource(body, by="service-account:sa-push")
        return 200 if there else 201, self.resources[body["metadata"]["name"]]

    def save_resource(self, body: Json, *, by: str) -> None:
        """Keep a resource as the last version of its name."""
        name = body["metadata"]["name"]
        before = self.resources.get(name, {}).get("metadata", {"generation": 0})
        number = before["generation"] + 1
        notes = {**body["metadata"].get("annotations", {}), "grafana.app/updatedBy": by}
        self.resources[name] = {
            **body,
            "metadata": {"name": name, "annotations": notes, "generation": number, "resourceVersion": str(1000 + number)},
        }

    def _folders(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        limit, page = int(query["limit"][0]), int(query["page"][0])
        found = [{"id": number, "uid": uid, "title": title} for number, (uid, title) in enumerate(self.folders.items())]
        return 200, found[limit * (page - 1) : limit * page]

    def _search(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        tagged = {uid: kept.dashboard for uid, kept in self.boards.items() if {*query["tag"]} <= {*kept.dashboard.get("tags", [])}}
        found = [{"uid": uid, "title": one["title"], "type": "dash-db", "tags": one["tags"]} for uid, one in tagged.items()]
        return 200, found[: int(query["limit"][0])]

    def _new_folder(self, body: Json) -> tuple[int, Any]:
        if body["title"] in self.folders.values():
            return 409, {"message": "a folder with the same name already exists"}
        uid = f"f{len(self.folders)}"
        self.folders[uid] = body["title"]
        return 200, {"id": 1, "uid": uid, "title": body["title"]}

    def _board(self, uid: str) -> tuple[int, Any]:
        kept = self.boards[uid]
        meta = {"folderUid": kept.folder, "provisioned": kept.provisioned, "updatedBy": kept.by, "slug": uid}
        return 200, {"dashboard": kept.dashboard, "meta": meta}

    def _versions(self, uid: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        found = self.boards[uid].versions[: int(query["limit"][0])]
        return 200, {"continueToken": "", "versions": found} if self.lists_versions else found

    def _save(self, body: Json) -> tuple[int, Any]:
        if self.before_post:
            self.before_post()
        if self.refuse:
            return self.refuse
        wanted, uid = body["dashboard"], body["dashboard"]["uid"]
        kept = self.boards.get(uid)
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        if kept and kept.dashboard["version"] != wanted["version"] and not body["overwrite"]:
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        version = kept.dashboard["version"] + 1 if kept else 1
        entry = {"version": version, "message": body["message"], "createdBy": "sa-push"}
        versions = [entry, *(kept.versions if kept else [])]
        self.boards[uid] = Kept({**wanted, "id": 7, "version": version}, body["folderUid"], versions)
        return 200, {"id": 7, "uid": uid, "url": f"/d/{uid}/x", "status": "success", "version": version, "slug": "x"}


@contextmanager
def running() -> Iterator[FakeGrafana]:
    fake = FakeGrafana()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        do_PUT = do_POST  # noqa: N815 - the name is the base class's

        def _answer(self, body: Json) -> None:
            url = urlsplit(self.path)
            fake.asked.append((self.command, url.path))
            fake.tokens.add(self.headers.get("Authorization", ""))
            code, content = fake.answer(self.command, url.path, parse_qs(url.query), body, self.headers.get("Authorization", ""))
            page = b"<html>" if fake.page_below_apis and url.path.startswith("/apis") else b""
            data = fake.raw or page or json.dumps(content).encode()
            self.send_response(302 if fake.redirect else code)
            if fake.redirect:
                self.send_header("Location", fake.redirect)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    with serving(Handler) as fake.url:
        yield fake
