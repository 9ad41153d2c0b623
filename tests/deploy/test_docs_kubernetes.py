"""What docs/guides/kubernetes.md shows is true: its documents and values are valid, its table is the chart's."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import REPOSITORY
from kubernetes_rules import pod_faults, pods, schema_faults
from rendering import CHART, DEPLOY, EACH_VERSION, VERSIONS, one, render
from tachoscope_core import yaml_text
from tachoscope_core.metrics.gpu import GPU_METRICS
from tachoscope_node.config.settings import Config

PAGE = (REPOSITORY / "docs" / "guides" / "kubernetes.md").read_text()
BLOCKS = [yaml_text.load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)]
DOCUMENTS = [block for block in BLOCKS if "kind" in block]
VALUES = [block for block in BLOCKS if "kind" not in block]


def rights(part: dict[str, Any]) -> str:
    said = ["user 0"] if part.get("root") else []
    said += ["**privileged**"] if part.get("privileged") else []
    said += ["the node's processes (hostPID)"] if part.get("host_pid") else []
    said += ["the node's network (hostNetwork)"] if part.get("host_network") else []
    said += [f"capability {name}" for name in part.get("capabilities", [])]
    said += [f"`{path['path']}` {'written' if path.get('write') else 'read'}" for path in part.get("host_paths", [])]
    return ", ".join(said) or "none"


def table() -> str:
    """Return privileges.yaml as the page shows it."""
    lines = ["| part | on by | right | why |", "|---|---|---|---|"]
    for part in yaml_text.load((CHART / "privileges.yaml").read_text())["parts"]:
        switch = f"`{part['switch']}`" if "switch" in part else "always"
        if choices := part.get("is"):
            switch += " set" if choices == ["set"] else f": {', '.join(choices)}"
        why = part["why"] + (f" ([source]({part['source']}))" if "source" in part else "")
        lines.append(f"| {part['name']} | {switch} | {rights(part)} | {why} |")
    return "\n".join(lines)


def test_the_table_of_rights_is_that_of_the_chart() -> None:
    assert table() in PAGE


@EACH_VERSION
def test_each_document_is_valid(version: str) -> None:
    assert [document["kind"] for document in DOCUMENTS] == ["Pod", "Pod", "Secret"]
    assert [fault for document in DOCUMENTS for fault in schema_faults(document, version) + pod_faults(document)] == []


def test_all_values_that_it_shows_are_taken() -> None:
    assert len(VALUES) == 3
    for values in VALUES:
        for document in render(values):
            assert schema_faults(document, VERSIONS[-1]) + pod_faults(document) == []


def test_what_it_says_of_the_restricted_pods_state_and_of_the_store_of_a_node_is_so() -> None:
    restricted = render({"gpuAccess": "env", "collectors": {"pods": {"enabled": False}, "jobs": {"enabled": False}}})
    (state,) = (volume for volume in pods(one(restricted, "DaemonSet"))[0]["spec"]["volumes"] if volume["name"] == "state")
    agent = yaml_text.load(one(render({}), "ConfigMap")["data"]["agent.yaml"])

    assert "Its state is an `emptyDir`" in PAGE
    assert "emptyDir" in state
    assert f"the chart sets `sample_seconds: {agent['sample_seconds']}`" in PAGE
    assert agent["store"].startswith("/var/lib/")
    assert f"MB a day in {86400 / Config(store='s3://bucket').flush_seconds:g} objects" in " ".join(PAGE.split())


def test_the_pod_is_the_one_of_the_examples() -> None:
    assert (DEPLOY / "examples" / "pod.yaml").read_text().split("\n", 1)[1].rstrip() in PAGE


def test_it_says_that_it_was_not_applied_to_a_real_cluster() -> None:
    assert "has not been applied to a real cluster" in PAGE.split("## Install")[0]


def test_the_commands_name_what_is_there() -> None:
    commands = PAGE.split("```")[1]
    paths = [word for word in shlex.split(commands) if word.startswith("agents/deploy")]

    assert len(paths) == 2
    assert all((REPOSITORY / path).exists() for path in paths)
    assert commands.strip().count("\n") == 2
    (setting,) = (word for word in shlex.split(commands) if word.startswith("image.repository="))
    image = setting.partition("=")[2]
    assert f"-t {image.removesuffix('agent')}$image:0.1.0" in commands
    assert any(document["kind"] == "DaemonSet" for document in render({"image": {"repository": image}}))
    assert PAGE.count(f"image: {image.removesuffix('agent')}probe:0.1.0\n") == 1  # what was pushed is what a pod takes


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_the_query_gives_each_pod_the_utilisation_of_its_gpus_shared_ones_too(tmp_path: Path) -> None:
    (query,) = re.findall(r"```promql\n(.*?)\n```", PAGE)
    gpu = 'instance="node-1", gpu="0", uuid="GPU-0", mig="1"'
    workloads = {pod: f'workload_namespace="team", workload_pod="{pod}"' for pod in ("a", "b")}
    series = {f"tachoscope_gpu_workload_info{{{gpu}, {labels}}}": 1 for labels in workloads.values()}
    series |= {
        f"tachoscope_gpu_utilization_ratio{{{gpu}}}": 0.25,
        f"tachoscope_gpu_utilization_ratio{{{gpu.replace('0', '1')}}}": 1,
    }
    expected = [{"labels": f"{{{gpu}, {labels}}}", "value": 0.25} for labels in workloads.values()]
    test = {
        "input_series": [{"series": name, "values": f"{value} {value}"} for name, value in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "1m", "exp_samples": expected}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_links_lead_somewhere_and_keys_and_metrics_exist() -> None:
    for link in re.findall(r"\]\((?!https?://)([^)#]+)", PAGE):
        assert (REPOSITORY / "docs" / "guides" / link).exists(), link
    known = {metric.name for metric in GPU_METRICS} | {"tachoscope_agent_rejected_total", "tachoscope_agent_unreadable_directories"}
    assert set(re.findall(r"\btachoscope_(?:gpu|agent)_\w+", PAGE)) <= known
    values = yaml_text.load((CHART / "values.yaml").read_text())
    parts = "collectors|webConfig|podMonitor|serviceMonitor|networkPolicy|hostDriver|store|prometheusRules|dashboards"
    for path in set(re.findall(rf"`((?:{parts})(?:\.\w+)+)`", PAGE)):
        found: Any = values
        for key in path.split("."):
            found = found[key]
