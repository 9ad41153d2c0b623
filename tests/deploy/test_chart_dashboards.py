"""The boards in the chart: ConfigMaps that a Grafana's sidecar finds, with links to where the values say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers import REPOSITORY
from kubernetes_rules import schema_faults
from rendering import CHART, EACH_VERSION, render, run_helm, template
from tachoscope_core import yaml_text

GENERATED = REPOSITORY / "dashboards" / "generated"


def boards(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ConfigMaps that hold boards."""
    return [one for one in documents if one["kind"] == "ConfigMap" and any(name.endswith(".json") for name in one["data"])]


def shown(**values: Any) -> list[dict[str, Any]]:
    return boards(render({"dashboards": {"enabled": True, **values}}))


def test_there_are_no_boards_unless_told_so() -> None:
    assert boards(render()) == []


def test_all_boards_are_there_as_they_were_built() -> None:
    found = {name: json.loads(text) for one in shown() for name, text in one["data"].items()}

    assert found == {f"tachoscope-{path.name}": json.loads(path.read_text()) for path in GENERATED.glob("*.json")}


@EACH_VERSION
def test_what_is_rendered_is_valid(version: str) -> None:
    documents = render({"dashboards": {"enabled": True}}, version)

    assert [fault for document in documents for fault in schema_faults(document, version)] == []
    names = [(one["kind"], one["metadata"]["name"]) for one in documents]
    assert len(set(names)) == len(names)


def test_helm_lints_the_chart_with_boards_strictly() -> None:
    done = run_helm("lint", "--strict", str(CHART), "--set", "dashboards.enabled=true")

    assert done.returncode == 0, done.stdout


def test_a_sidecar_finds_them_and_knows_the_folder() -> None:
    for one in shown():
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "tachoscope"}
        assert one["metadata"]["namespace"] == "tachoscope"


def test_labels_annotations_and_namespace_are_those_of_the_values() -> None:
    changed = {
        "labels": {"grafana_dashboard": None, "team": "ml"},
        "annotations": {"grafana_folder": "GPU"},
        "namespace": "monitoring",
    }
    for one in shown(**changed):
        assert one["metadata"]["labels"]["team"] == "ml"
        assert "grafana_dashboard" not in one["metadata"]["labels"]
        assert one["metadata"]["annotations"] == {"grafana_folder": "GPU"}
        assert one["metadata"]["namespace"] == "monitoring"


def test_links_lead_to_where_runbooks_and_explorer_are() -> None:
    policy = yaml_text.load((REPOSITORY / "alerts" / "policy.yaml").read_text())
    values = yaml_text.load((CHART / "values.yaml").read_text())["dashboards"]
    assert values["runbookBase"] == policy["runbook_base"]
    assert values["explorerBase"] == policy["explorer_base"]

    text = json.dumps(shown(runbookBase="https://wiki.test/runbooks/", explorerBase="http://explorer:8501"))
    assert "https://wiki.test/runbooks/AgentDown.md" in text
    assert "example.com" not in text


@pytest.mark.parametrize("base", ["wiki.test", "https://", 'https://x"y', "javascript:alert(1)"])
def test_a_base_that_is_no_address_is_refused(base: str) -> None:
    done = template(values={"dashboards": {"enabled": True, "runbookBase": base}})

    assert done.returncode != 0
    assert "runbookBase" in done.stderr
