"""The two APIs by which a Grafana takes boards: that of resources (Grafana 13, schema V2), and the one of all before.

https://grafana.com/docs/grafana/latest/developer-resources/api-reference/http-api/dashboard/
"""

from __future__ import annotations

import hashlib
import http
import json
import re
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import quote

from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.grafana_api import Grafana
from tachoscope_dashboards.parts.grafana_v2 import API_VERSION, to_resource

Json = dict[str, Any]
What = Literal["created", "updated", "unchanged", "refused"]
_MESSAGE = "tachoscope dashboards push"
_OURS = re.compile(rf"{_MESSAGE} (?P<fingerprint>[0-9a-f]{{16}})")
_LOOKED_BACK = 5
"""Versions that are asked for; the last is among them, in whichever order they come."""
_CHANGED = "it was changed during this push: push again"


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a board, or would become of it; `why` of one that was refused."""

    uid: str
    what: What
    why: str = ""


@dataclass(frozen=True, slots=True)
class RemoteBoard:
    """A board that a Grafana has: its last version, who wrote that and with which fingerprint, if it was pushed from here."""

    version: int
    folder: str
    by: str
    fingerprint: str
    provisioned: bool
    resource_version: str = ""


class DashboardApi(Protocol):
    """Reads and writes single boards."""

    def fingerprint(self, board: Json) -> str:
        """Return what tells a board, as it is written by this API, from another one."""

    def read(self, uid: str) -> RemoteBoard | None:
        """Return what the Grafana has under a uid; None: nothing. Raises TachoscopeError."""

    def write(self, board: Json, folder: str, before: RemoteBoard | None) -> Done:
        """Create a board, or update the version that was read; what was changed in between is refused."""


def api_of(grafana: Grafana) -> DashboardApi:
    """Return the API of resources where this Grafana has it in schema V2, else the one of all Grafanas before."""
    try:
        found = grafana.request(f"/apis/{API_VERSION}")
    except TachoscopeError:  # before Grafana 12 there is a page here; a token that is wrong is refused at the next request
        return FormerApi(grafana)
    names = [one.get("name") for one in found.content.get("resources", [])] if isinstance(found.content, dict) else []
    return ResourceApi(grafana) if found.status == http.HTTPStatus.OK and "dashboards" in names else FormerApi(grafana)


def fingerprint(board: Json) -> str:
    """Return what tells a board from another one."""
    return hashlib.sha256(json.dumps(board, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _fingerprint_in(message: str) -> str:
    ours = _OURS.fullmatch(message)
    return ours["fingerprint"] if ours else ""


class ResourceApi:
    """Boards as resources in schema V2; the version that is updated is named by its resourceVersion."""

    def __init__(self, grafana: Grafana) -> None:
        """Ask in which namespace the boards of the token's organisation are."""
        self._grafana = grafana
        settings = grafana.request("/api/frontend/settings").content
        namespace = settings.get("namespace", "default") if isinstance(settings, dict) else "default"
        self._path = f"/apis/{API_VERSION}/namespaces/{quote(str(namespace), safe='')}/dashboards"

    def fingerprint(self, board: Json) -> str:
        return fingerprint(to_resource(board))

    def read(self, uid: str) -> RemoteBoard | None:
        answer = self._grafana.request(f"{self._path}/{quote(uid, safe='')}")
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        try:
            metadata = answer.content["metadata"]
            notes = metadata.get("annotations", {})
            return RemoteBoard(
                version=int(metadata.get("generation", 0)),
                folder=str(notes.get("grafana.app/folder", "")),
                by=str(notes.get("grafana.app/updatedBy", "")),
                fingerprint=_fingerprint_in(str(notes.get("grafana.app/message", ""))),
                provisioned=bool(notes.get("grafana.app/managedBy")),
                resource_version=str(metadata["resourceVersion"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise TachoscopeError(f"{self._grafana.url} answers {answer.status} about the board {uid}: {answer.text}") from None

    def write(self, board: Json, folder: str, before: RemoteBoard | None) -> Done:
        resource = to_resource(board)
        resource["metadata"]["annotations"] = {
            "grafana.app/folder": folder,
            "grafana.app/message": f"{_MESSAGE} {fingerprint(resource)}",
        }
        if before:
            resource["metadata"]["resourceVersion"] = before.resource_version
            answer = self._grafana.request(f"{self._path}/{quote(board['uid'], safe='')}", resource, method="PUT")
        else:
            answer = self._grafana.request(self._path, resource)
        if answer.status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}:
            return Done(board["uid"], "updated" if before else "created")
        why = _CHANGED if answer.status == http.HTTPStatus.CONFLICT else f"Grafana answers {answer.status}: {answer.text}"
        return Done(board["uid"], "refused", why)


class FormerApi:
    """Boards in the schema of Grafana 11 and 12, with a list of their versions and the message of each."""

    def __init__(self, grafana: Grafana) -> None:
        self._grafana = grafana

    def fingerprint(self, board: Json) -> str:
        return fingerprint(board)

    def read(self, uid: str) -> RemoteBoard | None:
        answer = self._grafana.request(f"/api/dashboards/uid/{quote(uid, safe='')}")
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        try:
            board, meta = answer.content["dashboard"], answer.content["meta"]
            version, by, message = int(board["version"]), str(meta.get("updatedBy", "")), self._message(uid, int(board["version"]))
            mark = _fingerprint_in(message)
            return RemoteBoard(version, str(meta.get("folderUid", "")), by, mark, bool(meta.get("provisioned")))
        except (KeyError, TypeError, ValueError, AttributeError):
            what = f"{self._grafana.url} answers {answer.status} about the board {uid}: {answer.text}"
            raise TachoscopeError(what, fix="its version is perhaps older than 11") from None

    def _message(self, uid: str, version: int) -> str:
        """Return the message of the version that a board has; nothing if it cannot be determined."""
        answer = self._grafana.request(f"/api/dashboards/uid/{quote(uid, safe='')}/versions?limit={_LOOKED_BACK}")
        if answer.status != http.HTTPStatus.OK:
            return ""
        # Grafana before 11 gives a list, later ones an object that has it.
        versions = answer.content["versions"] if isinstance(answer.content, dict) else answer.content
        return next((str(one.get("message", "")) for one in versions if one.get("version") == version), "")

    def write(self, board: Json, folder: str, before: RemoteBoard | None) -> Done:
        body = {
            "dashboard": {**board, "id": None, "version": before.version if before else 0},
            "folderUid": folder,
            "message": f"{_MESSAGE} {fingerprint(board)}",
            # Of a version that was looked at: what was changed in between is refused by Grafana.
            "overwrite": False,
        }
        answer = self._grafana.request("/api/dashboards/db", body)
        if answer.status == http.HTTPStatus.OK:
            return Done(board["uid"], "updated" if before else "created")
        status = answer.content.get("status", "") if isinstance(answer.content, dict) else ""
        why = {
            "version-mismatch": _CHANGED,
            "name-exists": f"another board has its title or uid ({answer.text}): rename or delete it, or choose another --folder",
            "plugin-dashboard": "it belongs to a plugin of Grafana's",
        }.get(status, f"Grafana answers {answer.status}: {answer.text}")
        return Done(board["uid"], "refused", why)
