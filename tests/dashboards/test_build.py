"""What is built: the same bytes each time, ConfigMaps that Kubernetes takes, nothing that was removed; and what is committed."""

from __future__ import annotations

import json
from pathlib import Path

import kubernetes_validate
import pytest

from board_making import POLICY, Json, made
from helpers import REPOSITORY
from tachoscope_alerts.compile.links import board_name
from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.build import MOST_BYTES, build, check, contents
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.grafana_v2 import to_resource

SUITE = [to_json(board) for board in boards(POLICY)]
GENERATED = REPOSITORY / "dashboards" / "generated"
OF_CHART = REPOSITORY / "agents" / "deploy" / "chart" / "tachoscope-agent" / "dashboards"


def other(uid: str) -> Json:
    return {**made(), "uid": uid}


def test_each_board_is_a_file_and_a_config_map_with_the_same_board(tmp_path: Path) -> None:
    written = build([made()], tmp_path, configmaps=True)
    config_map = yaml_text.load((tmp_path / "configmaps" / "small.yaml").read_text())

    assert [str(path.relative_to(tmp_path)) for path in written] == ["small.json", "configmaps/small.yaml"]
    assert json.loads((tmp_path / "small.json").read_text()) == made()
    assert config_map["data"] == {"tachoscope-small.json": (tmp_path / "small.json").read_text()}
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config_map["metadata"]["annotations"] == {"grafana_folder": "tachoscope"}
    assert "namespace" not in config_map["metadata"]


@pytest.mark.parametrize("board", SUITE, ids=lambda board: board["uid"])
def test_a_config_map_is_valid_and_small_enough_for_kubectl_to_apply(board: Json) -> None:
    text = contents([board], configmaps=True)[f"configmaps/{board_name(board['uid'])}.yaml"]

    kubernetes_validate.validate(yaml_text.load(text), "1.34", strict=True)
    assert len(text.encode()) < 256 << 10  # kubectl keeps what was applied in an annotation, which has at most this


def test_config_maps_are_written_on_demand_and_kept_current_from_then_on(tmp_path: Path) -> None:
    build([made()], tmp_path)
    assert not (tmp_path / "configmaps").exists()

    build([made()], tmp_path, configmaps=True)
    build([other("b")], tmp_path)
    assert [path.name for path in (tmp_path / "configmaps").iterdir()] == ["b.yaml"]


def test_resources_in_schema_v2_are_written_on_demand_and_kept_current_too(tmp_path: Path) -> None:
    build([made(), other("gone")], tmp_path, v2=True)
    build([made()], tmp_path)

    (path,) = (tmp_path / "v2").iterdir()
    assert json.loads(path.read_text()) == to_resource(made())
    path.write_text(path.read_text().replace("Dashboard", "Board", 1))
    assert [str(one.relative_to(tmp_path)) for one in check([made()], tmp_path)] == ["v2/small.json"]


def test_the_same_boards_give_the_same_bytes(tmp_path: Path) -> None:
    assert contents([made(), other("b")]) == contents([made(), other("b")])
    build([made()], tmp_path)
    assert check([made()], tmp_path) == []


def test_what_a_build_would_write_change_or_remove_is_not_current(tmp_path: Path) -> None:
    build([made(), other("gone")], tmp_path, configmaps=True)
    (tmp_path / "small.json").write_text("{}")
    (tmp_path / "configmaps" / "small.yaml").unlink()

    stale = [str(path.relative_to(tmp_path)) for path in check([made()], tmp_path)]
    assert stale == ["small.json", "configmaps/small.yaml", "gone.json", "configmaps/gone.yaml"]


def test_what_an_earlier_build_made_goes_and_what_others_put_there_stays(tmp_path: Path) -> None:
    build([made(), other("tachoscope-gone")], tmp_path, configmaps=True)
    (tmp_path / "before.json").write_text(json.dumps(other("before")))  # of a version whose uids were the names alone
    of_others = {
        tmp_path / "theirs.json": json.dumps({"uid": "theirs", "tags": ["own"]}),
        tmp_path / "copy.json": json.dumps(other("tachoscope-gone")),
        tmp_path / "broken.json": "{",
        tmp_path / "configmaps" / "theirs.yaml": "kind: ConfigMap\n",
    }
    for path, text in of_others.items():
        path.write_text(text)
    build([made()], tmp_path)

    assert not (tmp_path / "gone.json").exists()
    assert not (tmp_path / "before.json").exists()
    assert not (tmp_path / "configmaps" / "gone.yaml").exists()
    assert {path: path.read_text() for path in of_others} == of_others
    assert check([made()], tmp_path) == []


def test_a_board_that_no_config_map_holds_is_refused() -> None:
    with pytest.raises(TachoscopeError, match="the board small has more than 1 MiB"):
        contents([{**made(), "description": "x" * MOST_BYTES}])


def test_a_number_that_json_has_not_is_refused() -> None:
    with pytest.raises(TachoscopeError, match="the board small cannot be written"):
        contents([{**made(), "version": float("nan")}])


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(TachoscopeError, match=r"file.* cannot be written"):
        build([made()], tmp_path / "file")


def test_what_is_committed_is_what_the_boards_make() -> None:
    assert check(SUITE, GENERATED) == []
    assert {path.stem: json.loads(path.read_text()) for path in OF_CHART.glob("*.json")} == {
        board_name(one["uid"]): one for one in SUITE
    }
