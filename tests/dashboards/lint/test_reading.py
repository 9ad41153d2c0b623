"""Dashboards of files: in each form in which Grafana gives them, and what is said of files that hold none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from board_making import Json, made, panel
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.lint.board_json import Dashboard, dashboard, files, read


def of_file(tmp_path: Path, content: object) -> Dashboard:
    path = tmp_path / "board.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read(path)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda raw: raw,
        lambda raw: {"dashboard": raw, "meta": {"isStarred": False}},
        lambda raw: {"apiVersion": "dashboard.grafana.app/v1beta1", "kind": "Dashboard", "metadata": {"name": "x"}, "spec": raw},
    ],
    ids=["export", "api", "resource"],
)
def test_a_board_is_the_same_however_grafana_gives_it(tmp_path: Path, wrapped: object) -> None:
    found = of_file(tmp_path, wrapped(made()))  # type: ignore[operator]

    assert (found.uid, found.editable, found.place) == ("small", False, str(tmp_path / "board.json"))
    assert [one.title for one in found.all_panels()] == ["", "Nodes", "Time", "Where time goes", "Ranks"]
    assert [one.name for one in found.variables()] == ["datasource", "cluster", "namespace", "node", "training_job"]


def test_null_is_what_is_not_set() -> None:
    raw = made()
    panel(raw, "Nodes").update(description=None, links=None, datasource=None)
    raw["editable"] = None
    found = dashboard(raw, "x")

    assert found.editable
    assert next(one for one in found.query_panels() if one.title == "Nodes").description == ""


def test_a_query_with_both_ways_to_ask_is_one_over_time() -> None:
    def is_instant(**changes: bool) -> bool:
        raw = made()
        panel(raw, "Nodes")["targets"][0] = {"expr": "up", **changes}
        (target,) = next(one for one in dashboard(raw, "x").query_panels() if one.title == "Nodes").targets
        return target.is_instant

    assert is_instant(instant=True)
    assert not is_instant(instant=True, range=True)
    assert not is_instant()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ([], "has no panels"),
        ({"title": "x"}, "has no panels"),
        ({"apiVersion": "dashboard.grafana.app/v2beta1", "spec": {"elements": {}}}, "schema version 2"),
        ({"panels": [{"id": 1, "targets": [{"expr": 5}]}]}, r"\$.panels\[0\].targets\[0\].expr"),
        ({"panels": ["x"]}, r"\$.panels\[0\]"),
    ],
)
def test_a_file_that_holds_no_board_is_named_with_the_place(tmp_path: Path, content: Json, said: str) -> None:
    with pytest.raises(TachoscopeError, match=f"board.json.*{said}"):
        of_file(tmp_path, content)


def test_files_and_folders_are_looked_into(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "c.yaml"):
        (tmp_path / name).write_text("{}")

    assert files([tmp_path, tmp_path / "c.yaml"]) == [tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.yaml"]
    with pytest.raises(TachoscopeError, match="cannot be read"):
        read(tmp_path / "nowhere.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TachoscopeError, match="contains no"):
        files([tmp_path / "empty"])
