"""The rules in the chart: PrometheusRules that an operator's Prometheus finds, with links to where the values say."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from helpers import REPOSITORY
from kubernetes_rules import schema_faults
from rendering import CHART, EACH_VERSION, VERSIONS, render, run_helm, template
from tachoscope_core import yaml_text

GENERATED = REPOSITORY / "alerts" / "generated" / "prometheus"


def rules(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in documents if one["kind"] == "PrometheusRule"]


def shown(**values: Any) -> list[dict[str, Any]]:
    return rules(render({"prometheusRules": {"enabled": True, **values}}))


def test_there_are_no_rules_unless_told_so() -> None:
    assert rules(render()) == []


def test_all_rules_are_there_as_they_were_built_with_the_templates_of_prometheus() -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in shown()}

    assert found == {
        f"tachoscope-agent-{path.name.removesuffix('.rules.yaml')}": yaml_text.load(path.read_text())
        for path in GENERATED.glob("*.rules.yaml")
    }
    assert "{{ $labels.collector }}" in json.dumps(found)


@EACH_VERSION
def test_what_is_rendered_is_valid_beside_the_boards(version: str) -> None:
    documents = render({"prometheusRules": {"enabled": True}, "dashboards": {"enabled": True}}, version)

    assert [fault for document in documents for fault in schema_faults(document, version)] == []
    names = [(one["kind"], one["metadata"]["name"]) for one in documents]
    assert len(set(names)) == len(names)


def test_the_check_finds_a_rule_with_a_field_that_the_operator_does_not_know() -> None:
    damaged = copy.deepcopy(shown()[0])
    damaged["spec"]["groups"][0]["rules"][0]["keepFiringFor"] = "5m"

    (fault,) = schema_faults(damaged, VERSIONS[-1])
    assert "keepFiringFor" in fault


def test_helm_lints_the_chart_with_rules_strictly() -> None:
    done = run_helm("lint", "--strict", str(CHART), "--set", "prometheusRules.enabled=true")

    assert done.returncode == 0, done.stdout


def test_labels_annotations_and_namespace_are_those_of_the_values() -> None:
    for one in shown(labels={"release": "prometheus"}, annotations={"team": "ml"}, namespace="monitoring"):
        assert one["metadata"]["labels"]["release"] == "prometheus"
        assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "tachoscope-agent"
        assert one["metadata"]["annotations"] == {"team": "ml"}
        assert one["metadata"]["namespace"] == "monitoring"


def test_links_lead_to_where_runbooks_and_boards_are() -> None:
    policy = yaml_text.load((REPOSITORY / "alerts" / "policy.yaml").read_text())
    values = yaml_text.load((CHART / "values.yaml").read_text())
    assert values["prometheusRules"]["dashboardBase"] == policy["dashboard_base"]

    of_boards = {"enabled": True, "runbookBase": "https://wiki.test/runbooks/"}
    both = {"prometheusRules": {"enabled": True, "dashboardBase": "https://grafana.test/x/d/"}, "dashboards": of_boards}
    text = json.dumps(rules(render(both)))
    assert "https://wiki.test/runbooks/AgentDown.md" in text
    assert "https://grafana.test/x/d/tachoscope-agents" in text
    assert "example.com" not in text
    assert "https://own.test/AgentDown.md" in json.dumps(shown(runbookBase="https://own.test"))


@pytest.mark.parametrize("key", ["runbookBase", "dashboardBase"])
@pytest.mark.parametrize("base", ["wiki.test", "https://", "https://x'y", "javascript:alert(1)"])
def test_a_base_that_is_no_address_is_refused(key: str, base: str) -> None:
    done = template(values={"prometheusRules": {"enabled": True, key: base}})

    assert done.returncode != 0
    assert key in done.stderr
