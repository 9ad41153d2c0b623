"""Writes the boards: JSON for a folder that Grafana reads or for its import, ConfigMaps for its sidecar, resources in schema V2.

The same boards give the same bytes, so that what is committed can be compared with what it is made from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tachoscope_alerts.compile.links import board_name
from tachoscope_alerts.compile.yaml_writer import to_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.parts.grafana_v2 import API_VERSION, to_resource

Json = dict[str, Any]
HEADER = "# Made by `tachoscope dashboards build`: change dashboards/tachoscope_dashboards, then `make generate`.\n"
LABELS = {"app.kubernetes.io/name": "tachoscope", "app.kubernetes.io/component": "dashboards", "grafana_dashboard": "1"}
"""The last is what the sidecar of Grafana's chart looks for."""
FOLDER = "tachoscope"
"""Of Grafana, where boards are kept together."""
CONFIGMAPS = "configmaps"
V2 = "v2"
MOST_BYTES = 1 << 20
"""Of the data of a ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/"""


def contents(boards: Sequence[Json], *, configmaps: bool = False, v2: bool = False) -> dict[str, str]:
    """Return what each file holds, by its path below the folder of generated files.

    Args:
        configmaps: with a ConfigMap for each board. v2: with a resource in schema V2 for each board.

    Raises:
        TachoscopeError: a board is too large for a ConfigMap, or holds a number that JSON has not.
    """
    found = {}
    for board in boards:
        name = board_name(board["uid"])
        text = written(board)
        if len(text.encode()) > MOST_BYTES:
            raise TachoscopeError(f"the board {name} has more than 1 MiB, the limit of a ConfigMap", fix="make two of it")
        found[f"{name}.json"] = text
        if configmaps:
            found[f"{CONFIGMAPS}/{name}.yaml"] = HEADER + to_yaml(config_map(name, text))
        if v2:
            found[f"{V2}/{name}.json"] = json.dumps(to_resource(board), indent=1, ensure_ascii=False) + "\n"
    return found


def written(board: Json) -> str:
    """Return a board as JSON for people and programs.

    Raises:
        TachoscopeError: it holds a number that JSON has not.
    """
    try:
        return json.dumps(board, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError as error:
        raise TachoscopeError(f"the board {board['uid']} cannot be written: {error}", fix="look for inf and nan in it") from None


def file_name(name: str) -> str:
    """Return the name of a board's file beside those of others, which a sidecar writes into one folder."""
    return f"tachoscope-{name}.json"


def config_map(name: str, text: str) -> Json:
    """Return the resource that holds a board; its namespace is where it is applied."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"tachoscope-dashboard-{name}", "labels": LABELS, "annotations": {"grafana_folder": FOLDER}},
        "data": {file_name(name): text},
    }


def build(boards: Sequence[Json], out: Path, *, configmaps: bool = False, v2: bool = False) -> list[Path]:
    """Write all files below `out`, and remove those that an earlier build made and this one does not; return those written.

    Args:
        configmaps, v2: write a ConfigMap, a resource in schema V2 for each board too. Those of an earlier build are kept current in
            any case.

    Raises:
        TachoscopeError: a file cannot be written.
    """
    made = contents(boards, configmaps=configmaps or _has(out, CONFIGMAPS), v2=v2 or _has(out, V2))
    try:
        for folder in {(out / name).parent for name in made}:
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (out / name).write_text(text)
        for path in _left_over(made, out):
            path.unlink()
    except OSError as error:
        raise TachoscopeError(f"{error.filename} cannot be written: {error.strerror}", fix="name another folder by --out") from None
    return [out / name for name in made]


def check(boards: Sequence[Json], out: Path, *, configmaps: bool = False, v2: bool = False) -> list[Path]:
    """Return the files below `out` that a build would change, write or remove."""
    made = contents(boards, configmaps=configmaps or _has(out, CONFIGMAPS), v2=v2 or _has(out, V2))
    changed = [out / name for name, text in made.items() if not (out / name).is_file() or (out / name).read_text() != text]
    return changed + _left_over(made, out)


def _has(out: Path, folder: str) -> bool:
    return any(path.parent == out / folder for path in _ours(out))


def _left_over(made: dict[str, str], out: Path) -> list[Path]:
    return [path for path in _ours(out) if str(path.relative_to(out)) not in made]


def _ours(out: Path) -> list[Path]:
    """Return the files that earlier builds made: others may lie beside them."""
    there = [*sorted(out.glob("*.json")), *sorted((out / CONFIGMAPS).glob("*.yaml")), *sorted((out / V2).glob("*.json"))]
    return [path for path in there if _is_ours(path)]


def _is_ours(path: Path) -> bool:
    """Return whether an earlier build made a file."""
    text = path.read_text()
    if path.suffix == ".yaml":
        return text.startswith(HEADER)
    try:
        content = json.loads(text)
    except ValueError:
        return False
    if not isinstance(content, dict):
        return False
    is_resource = content.get("apiVersion") == API_VERSION
    tags = (content.get("spec", {}) if is_resource else content).get("tags") or []
    uid = content.get("metadata", {}).get("name") if is_resource else content.get("uid")
    return "tachoscope" in tags and board_name(str(uid)) == path.stem
