"""Pushes boards to a Grafana, and overwrites nothing that a person has made there.

Each version that is pushed carries a message with a fingerprint of the board. What is pushed is known again by it: a board whose
last version has the same one is current, and one whose last version has none was changed by somebody else.
"""

from __future__ import annotations

import hashlib
import http
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from tachoscope_alerts.compile.links import board_name
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.grafana_api import Grafana, GrafanaResponse

Json = dict[str, Any]
What = Literal["created", "updated", "unchanged", "refused"]
_MESSAGE = "tachoscope dashboards push"
_OURS = re.compile(rf"{_MESSAGE} (?P<fingerprint>[0-9a-f]{{16}})")
_PAGE = 1000
"""Folders that Grafana lists at once."""
_SEARCHED = 5000
"""Boards that Grafana lists at once, the most that it takes."""
_LOOKED_BACK = 5
"""Versions that are asked for; the last is among them, in whichever order they come."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a board, or would become of it; `why` of one that was refused."""

    uid: str
    what: What
    why: str = ""


@dataclass(frozen=True, slots=True)
class _RemoteBoard:
    """A board that a Grafana has: its last version, who wrote that and with which fingerprint, if it was pushed from here."""

    version: int
    folder: str
    by: str
    fingerprint: str
    provisioned: bool


def fingerprint(board: Json) -> str:
    """Return what tells a board from another one."""
    return hashlib.sha256(json.dumps(board, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def push(
    grafana: Grafana, boards: Sequence[Json], folder: str, *, overwrite: bool = False, dry_run: bool = False
) -> Iterator[Done]:
    """Push boards into a folder, which is made where it is missing; yield what became of each.

    Args:
        folder: title of a folder at the top. overwrite: also boards that others have made or changed.
        dry_run: change nothing, and say what would become of each.

    Raises:
        TachoscopeError: no Grafana, or the token may not do this.
    """
    place = _folder(grafana, folder)
    if not place and not dry_run:
        place = _new_folder(grafana, folder)
    for board in boards:
        there = _there(grafana, board["uid"])
        refused = _refused(there, overwrite=overwrite)
        if refused:
            yield Done(board["uid"], "refused", refused)
        elif there and there.fingerprint == fingerprint(board) and there.folder == place:
            yield Done(board["uid"], "unchanged")
        elif dry_run:
            yield Done(board["uid"], "updated" if there else "created")
        else:
            yield _pushed(grafana, board, place, there)


def superseded(grafana: Grafana, boards: Sequence[Json]) -> list[str]:
    """Return the uids of boards of ours that are left of a version before uids began with `tachoscope-`; a push leaves them there.

    Raises:
        TachoscopeError: no Grafana, or the token may not look.
    """
    before = {board_name(board["uid"]) for board in boards} - {board["uid"] for board in boards}
    found = _expect(grafana.request(f"/api/search?type=dash-db&tag=tachoscope&limit={_SEARCHED}"), list, grafana, "boards")
    return sorted(before & {str(one.get("uid")) for one in found if isinstance(one, dict)})


# --- folders ------------------------------------------------------------------------------------------------------------------


def _folder(grafana: Grafana, title: str) -> str:
    """Return the uid of a folder at the top; nothing if there is none."""
    found: list[str] = []
    for page in range(1, 1000):
        folders = _expect(grafana.request(f"/api/folders?limit={_PAGE}&page={page}"), list, grafana, "folders")
        found += [str(one["uid"]) for one in folders if isinstance(one, dict) and one.get("title") == title and one.get("uid")]
        if len(folders) < _PAGE:
            break
    if len(found) > 1:
        raise TachoscopeError(f"{grafana.url} has {len(found)} folders {title!r}", fix="name another by --folder")
    return found[0] if found else ""


def _new_folder(grafana: Grafana, title: str) -> str:
    made = _expect(grafana.request("/api/folders", {"title": title}), dict, grafana, "folders")
    return str(made.get("uid", ""))


def _expect(answer: GrafanaResponse, kind: type, grafana: Grafana, about: str) -> Any:
    if answer.status != http.HTTPStatus.OK or not isinstance(answer.content, kind):
        raise TachoscopeError(f"{grafana.url} answers {answer.status} about {about}: {answer.text}")
    return answer.content


# --- boards -------------------------------------------------------------------------------------------------------------------


def _there(grafana: Grafana, uid: str) -> _RemoteBoard | None:
    answer = grafana.request(f"/api/dashboards/uid/{quote(uid, safe='')}")
    if answer.status == http.HTTPStatus.NOT_FOUND:
        return None
    try:
        board, meta = answer.content["dashboard"], answer.content["meta"]
        version, by, message = int(board["version"]), str(meta.get("updatedBy", "")), _message(grafana, uid, int(board["version"]))
        ours = _OURS.fullmatch(message)
        mark = ours["fingerprint"] if ours else ""
        return _RemoteBoard(version, str(meta.get("folderUid", "")), by, mark, bool(meta.get("provisioned")))
    except (KeyError, TypeError, ValueError, AttributeError):
        what = f"{grafana.url} answers {answer.status} about the board {uid}: {answer.text}"
        raise TachoscopeError(what, fix="its version is perhaps older than 11") from None


def _message(grafana: Grafana, uid: str, version: int) -> str:
    """Return the message of the version that a board has; nothing if it cannot be determined."""
    answer = grafana.request(f"/api/dashboards/uid/{quote(uid, safe='')}/versions?limit={_LOOKED_BACK}")
    if answer.status != http.HTTPStatus.OK:
        return ""
    # Grafana before 11 gives a list, later ones an object that has it.
    versions = answer.content["versions"] if isinstance(answer.content, dict) else answer.content
    return next((str(one.get("message", "")) for one in versions if one.get("version") == version), "")


def _refused(there: _RemoteBoard | None, *, overwrite: bool) -> str:
    """Return why a board is not touched; nothing if it may be."""
    if there is None:
        return ""
    if there.provisioned:
        return "Grafana loads it from a file, and lets nobody else change it: change that file, or take it away"
    if there.fingerprint or overwrite:
        return ""
    by = f" by {there.by}" if there.by else ""
    return f"its version {there.version} was made{by}, not by a push: look at it there, then push with --overwrite"


def _pushed(grafana: Grafana, board: Json, folder: str, there: _RemoteBoard | None) -> Done:
    body = {
        "dashboard": {**board, "id": None, "version": there.version if there else 0},
        "folderUid": folder,
        "message": f"{_MESSAGE} {fingerprint(board)}",
        # Of a version that was looked at: what was changed in between is refused by Grafana.
        "overwrite": False,
    }
    answer = grafana.request("/api/dashboards/db", body)
    if answer.status == http.HTTPStatus.OK:
        return Done(board["uid"], "updated" if there else "created")
    status = answer.content.get("status", "") if isinstance(answer.content, dict) else ""
    why = {
        "version-mismatch": "somebody changed it at this moment: push again",
        "name-exists": f"another board has its title or uid ({answer.text}): rename or delete it, or choose another --folder",
        "plugin-dashboard": "it belongs to a plugin of Grafana's",
    }.get(status, f"Grafana answers {answer.status}: {answer.text}")
    return Done(board["uid"], "refused", why)
