"""Which boards are looked at: those of tachoscope, made again, or JSON files as they lie in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tachoscope_alerts.compile.links import board_name, board_uid
from tachoscope_alerts.spec import files, policy
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.lint import board_json
from tachoscope_dashboards.parts.grafana_json import to_json

Board = Mapping[str, Any]
_NEEDED = ("uid", "title")
_OF_PANEL = ("id", "type", "gridPos")


def load(wanted: Sequence[str]) -> dict[str, Board]:
    """Return the boards by uid. wanted: names or uids of tachoscope's boards, files or folders; without any, all of tachoscope's.

    Raises:
        TachoscopeError: there is none of a name, or a file is not a board.
    """
    own = {board.uid: board for board in boards(policy.load(files.path_of("policy.yaml")))}
    found: dict[str, Board] = {}
    for name in wanted or own:
        if (uid := board_uid(name)) in own:
            found[uid] = to_json(own[uid])
        elif Path(name).exists():
            found |= {str(board["uid"]): board for board in map(_read, _files(Path(name)))}
        else:
            raise TachoscopeError(
                f"there is no board, file or folder {name!r}", fix=f"there are the boards {', '.join(map(board_name, own))}"
            )
    return found


def _files(path: Path) -> list[Path]:
    found = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not found:
        raise TachoscopeError(f"{path} contains no *.json", fix="tachoscope dashboards build")
    return found


def _read(path: Path) -> Board:
    board = board_json.content_of(path)
    known = board_json.dashboard(board, str(path))  # what is not of a dashboard's form is said now, not on each panel
    missing = [key for key in _NEEDED if key not in board]
    if missing:
        raise TachoscopeError(f"{path} is not a board: it has no {', '.join(missing)}", fix="export it again")
    for panel, raw in zip(known.panels, board["panels"], strict=True):
        lacking = [key for key in _OF_PANEL if key not in raw]
        if lacking:
            raise TachoscopeError(f"{path}: the panel {panel.name!r} has no {', '.join(lacking)}", fix="export it again")
    return board
