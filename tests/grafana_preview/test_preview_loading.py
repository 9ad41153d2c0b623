"""Which boards are looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grafana_preview.loading import load
from tachoscope_core.errors import TachoscopeError

AGENTS = "tachoscope-agents"


def test_without_a_name_all_boards_are_made_and_by_name_or_uid_those_that_are_named() -> None:
    assert AGENTS in load([])
    assert list(load(["agents"])) == list(load([AGENTS])) == [AGENTS]
    assert load(["agents"])[AGENTS]["title"] == "tachoscope / Suite health"


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    board = load(["agents"])[AGENTS]
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**board, "uid": f"own-{name}"}))

    assert list(load([str(tmp_path)])) == ["own-a", "own-b"]
    assert list(load([str(tmp_path / "b.json"), "agents"])) == ["own-b", AGENTS]


def test_what_is_no_board_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"title": "X"}')
    (tmp_path / "y.json").write_text("{")
    (tmp_path / "z.json").write_text('{"title": "Z", "panels": []}')
    (tmp_path / "empty").mkdir()
    for name, said in (
        (str(tmp_path / "x.json"), r"x\.json is not a Grafana dashboard: it has no panels"),
        (str(tmp_path / "y.json"), r"y\.json is not JSON"),
        (str(tmp_path / "z.json"), r"z\.json is not a board: it has no uid"),
        (str(tmp_path / "empty"), "contains no"),
        ("fleat", "no board, file or folder 'fleat'.*agents"),
    ):
        with pytest.raises(TachoscopeError, match=said):
            load([name])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"targets": "x"}, r"own\.json is not a Grafana dashboard: Expected `array`"),
        ({"gridPos": None}, r"own\.json: the panel 'Agents up' has no gridPos"),
    ],
)
def test_what_check_refuses_is_told_before_anything_is_drawn(tmp_path: Path, damage: dict[str, Any], said: str) -> None:
    board = load(["agents"])[AGENTS]
    panels = [panel | damage if panel.get("title") == "Agents up" else panel for panel in board["panels"]]
    kept = [{key: part for key, part in panel.items() if part is not None} for panel in panels]
    (tmp_path / "own.json").write_text(json.dumps({**board, "panels": kept}))

    with pytest.raises(TachoscopeError, match=said):
        load([str(tmp_path / "own.json")])


def test_a_board_that_grafana_exported_with_what_is_around_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps({"dashboard": load(["agents"])[AGENTS], "meta": {}}))

    assert load([str(tmp_path / "own.json")])[AGENTS]["title"] == "tachoscope / Suite health"
