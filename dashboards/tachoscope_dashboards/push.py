"""Pushes boards to a Grafana, and overwrites nothing that a person has made there.

Each version that is pushed carries a message with a fingerprint of the board. What is pushed is known again by it: a board whose
last version has the same one is current, and one whose last version has none was changed by somebody else.
"""

from __future__ import annotations

import http
from collections.abc import Iterator, Sequence
from typing import Any

from tachoscope_alerts.compile.links import board_name
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.dashboard_apis import Done, RemoteBoard, api_of
from tachoscope_dashboards.grafana_api import Grafana, GrafanaResponse

Json = dict[str, Any]
_PAGE = 1000
"""Folders that Grafana lists at once."""
_SEARCHED = 5000
"""Boards that Grafana lists at once, the most that it takes."""


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
    api = api_of(grafana)
    for board in boards:
        there = api.read(board["uid"])
        refused = _refused(there, overwrite=overwrite)
        if refused:
            yield Done(board["uid"], "refused", refused)
        elif there and there.fingerprint == api.fingerprint(board) and there.folder == place:
            yield Done(board["uid"], "unchanged")
        elif dry_run:
            yield Done(board["uid"], "updated" if there else "created")
        else:
            yield api.write(board, place, there)


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


def _refused(there: RemoteBoard | None, *, overwrite: bool) -> str:
    """Return why a board is not touched; nothing if it may be."""
    if there is None:
        return ""
    if there.provisioned:
        return "Grafana loads it from a file and refuses other changes: change or remove that file"
    if there.fingerprint or overwrite:
        return ""
    by = f" by {there.by}" if there.by else ""
    return f"its version {there.version} was made{by}, not by a push: check it there, then push with --overwrite"
