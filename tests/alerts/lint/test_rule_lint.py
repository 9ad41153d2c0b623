"""Rules in files are checked as they are: in Prometheus's own files and in manifests of the operator."""

from pathlib import Path

import pytest
import yaml

from tachoscope_alerts.lint import lint, rule_expressions
from tachoscope_alerts.lint.catalogue import catalogue
from tachoscope_core.errors import TachoscopeError

GROUPS = [
    {"name": "sound", "rules": [{"record": "a:b", "expr": "sum by (cluster) (up)"}, {"alert": "Down", "expr": "up == 0"}]},
    {"name": "faulty", "rules": [{"alert": "Typing", "expr": "upp == 0"}, {"record": "slow:up", "expr": "avg_over_time(up[7h])"}]},
]


def test_faults_are_told_with_file_line_and_rule(tmp_path: Path):
    path = tmp_path / "prometheus" / "rules.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"groups": GROUPS}, sort_keys=False))
    lines = path.read_text().splitlines()
    first, second = lint.check_rules(tmp_path, catalogue())

    assert (first.path, first.severity) == (str(path), "error")
    assert "Typing" in lines[first.line - 1]
    assert first.what == "Typing: metric upp is in no catalogue"
    assert "slow:up" in lines[second.line - 1]
    assert second.what == "slow:up: raw series up over 7h"


def test_rules_in_a_manifest_are_checked_and_files_without_rules_are_not(tmp_path: Path):
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump({"kind": "PrometheusRule", "spec": {"groups": GROUPS}}))
    (tmp_path / "rules_test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [{"interval": "1m"}]}))
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: a}\n")

    assert [problem.what.partition(":")[0] for problem in lint.check_rules(tmp_path, catalogue())] == ["Typing", "slow"]


def test_an_expression_that_cannot_be_read_is_a_problem_of_its_rule(tmp_path: Path):
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [{"alert": "Cut", "expr": "sum("}]}]}))
    (problem,) = lint.check_rules(tmp_path, catalogue())

    assert problem.what.startswith("Cut: the expression 'sum('")


def test_a_file_that_is_no_yaml_is_refused_by_its_name(tmp_path: Path):
    (tmp_path / "rules.yml").write_text("groups: [")

    with pytest.raises(TachoscopeError, match=r"rules\.yml:\d+: this is not valid YAML"):
        lint.check_rules(tmp_path, catalogue())


@pytest.mark.parametrize(
    ("expression", "dropped"),
    [
        ("sum(up)", "cluster"),
        ("max by (instance) (up)", "cluster"),
        ("max by (cluster, training_job) (tachoscope_job_active)", "workload_namespace, team"),
        ("up and on (instance) tachoscope_agent_info", "cluster"),
        ("sum without (cluster) (up)", "cluster"),
        ("max by (cluster, instance) (up)", ""),
        ("max by (cluster, workload_namespace, team, training_job) (tachoscope_job_active)", ""),
        ("topk(3, up)", "cluster"),
        ("topk by (cluster) (3, up)", ""),
        ("up == 0", ""),
    ],
)
def test_a_rule_keeps_the_labels_that_tell_workloads_of_one_name_apart(expression: str, dropped: str):
    found = [fault.what for fault in rule_expressions.faults_of(expression, catalogue())]

    assert [what.partition(" drops ")[2].partition(":")[0] for what in found] == ([dropped] if dropped else [])
    assert rule_expressions.faults_of_query(expression, catalogue()) == []


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ('absent(up{job="tachoscope"})', "absent covers all clusters"),
        ('absent_over_time(up{job="tachoscope"}[5m])', "absent_over_time covers all clusters"),
        ('absent(up{job="tachoscope",cluster="a"})', ""),
        ('absent(up{job="tachoscope",cluster=""})', ""),
        ('label_replace(up, "cluster", "", "", "")', "overwrites cluster"),
        ('label_replace(up, "host", "$1", "instance", "(.*):.*")', ""),
    ],
)
def test_a_rule_hides_no_cluster_behind_another(expression: str, said: str):
    (*found,) = rule_expressions.faults_of(expression, catalogue())

    assert len(found) == bool(said)
    assert all(said in fault.what for fault in found)
