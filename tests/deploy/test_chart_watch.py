"""The chart's watch: one pod with the rights of none, that reads the store and lets in who may read metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from helpers import REPOSITORY
from kubernetes_rules import pod_faults, schema_faults
from rendering import EACH_VERSION, one, render, template
from tachoscope_alerts.compile.event_alerts import load
from tachoscope_watch.nodes.rules_file import read_rules

S3 = {"store": {"url": "s3://bucket/x"}, "watch": {"enabled": True}}
CLAIM = {"store": {"existingClaim": "shared"}, "watch": {"enabled": True}}


def watch_of(values: dict[str, Any]) -> dict[str, Any]:
    return one(render(values), "Deployment")["spec"]["template"]["spec"]


def test_without_being_switched_on_there_is_none() -> None:
    assert not any(document["kind"] in ("Deployment", "Service") for document in render({"store": {"url": "s3://bucket/x"}}))


NODES = {"store": {"url": "s3://bucket/x"}, "watch": {"enabled": True, "nodes": {"most_out": "5%", "actions": "dry-run"}}}
POD = {"containers": [{"name": "test", "image": "training", "args": ["nodes", "test", "--node", "$(TACHOSCOPE_NODE)"]}]}
TESTED = {"store": {"url": "s3://bucket/x"}, "watch": {"enabled": True, "nodes": {"most_out": 1, "test": {"pod": POD}}}}


@pytest.mark.parametrize("values", [S3, CLAIM, NODES, TESTED])
@EACH_VERSION
def test_what_is_rendered_is_valid(values: dict[str, Any], version: str) -> None:
    documents = render(values | {"podMonitor": {"enabled": True}}, version)

    assert [fault for document in documents for fault in schema_faults(document, version) + pod_faults(document)] == []


def test_only_with_rules_of_nodes_it_has_a_token_and_rights_which_are_its_own(tmp_path: Path) -> None:
    documents = render(NODES)
    role, account = one(documents, "ClusterRole"), watch_of(NODES)["serviceAccountName"]
    rules = tmp_path / "nodes.yaml"
    settings = [document for document in documents if document["kind"] == "ConfigMap" and "nodes.yaml" in document["data"]]
    rules.write_text(settings[0]["data"]["nodes.yaml"])

    assert {(place, verb) for rule in role["rules"] for place in rule["resources"] for verb in rule["verbs"]} == {
        *(("nodes", verb) for verb in ("get", "list", "patch")),
        ("nodes/status", "patch"),
        ("pods", "list"),
    }
    assert one(documents, "ClusterRoleBinding")["subjects"][0]["name"] == account
    assert one(documents, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"] != account
    assert (read_rules(rules).scheduler, read_rules(rules).actions) == ("kubernetes", "dry-run")
    assert not any(document["kind"] == "ClusterRole" for document in render(S3))
    assert watch_of(S3)["automountServiceAccountToken"] is False


def test_it_may_create_jobs_in_its_namespace_only_if_the_rules_have_the_pod_of_a_test(tmp_path: Path) -> None:
    documents, rules = render(TESTED), tmp_path / "nodes.yaml"
    rules.write_text(next(one["data"]["nodes.yaml"] for one in documents if "nodes.yaml" in one.get("data", {})))

    assert one(documents, "Role")["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}]
    assert not any(document["kind"] == "Role" for document in render(NODES))
    assert read_rules(rules).test_pod == POD


def test_the_store_is_compacted_by_the_watch_or_by_the_cron_job_and_not_by_both() -> None:
    assert "--compact-every" not in watch_of(S3)["containers"][0]["args"]

    args = watch_of(S3 | {"storeMaintenance": {"enabled": True}})["containers"][0]["args"]

    assert args[args.index("--compact-every") + 1] == "0"


@pytest.mark.parametrize("store", [{}, {"hostPath": "/srv/store"}])
def test_a_store_that_nodes_do_not_share_is_refused(store: dict[str, str]) -> None:
    done = template(values={"store": store, "watch": {"enabled": True}})

    assert done.returncode != 0 and "needs a store that all nodes share" in done.stderr


def options_of(pod: dict[str, Any]) -> dict[str, str]:
    (container,) = pod["containers"]
    command, *words = container["args"]
    assert command == "watch"
    return dict(zip(words[::2], words[1::2], strict=True))


def test_it_is_told_the_store_and_the_web_configuration() -> None:
    pod = watch_of(S3 | {"webConfig": {"existingSecret": "web"}})

    assert options_of(pod)["--store"] == "s3://bucket/x"
    assert options_of(pod)["--web-config"] == "/etc/tachoscope-web/web.yaml"
    assert [mount["name"] for mount in pod["containers"][0]["volumeMounts"]] == ["tmp", "web-config"]
    assert options_of(watch_of(CLAIM))["--store"] == "/store"


def test_several_share_the_jobs_and_one_alone_keeps_no_lease() -> None:
    several = one(render(S3 | {"watch": {"enabled": True, "replicas": 3}}), "Deployment")["spec"]

    assert (several["replicas"], several["strategy"]["type"]) == (3, "RollingUpdate")
    assert options_of(several["template"]["spec"])["--lease"] == "60"
    assert "--lease" not in options_of(watch_of(S3))


def test_on_an_object_store_it_is_nobody_and_on_a_volume_the_agents_user_without_capabilities() -> None:
    assert watch_of(S3)["securityContext"]["runAsNonRoot"] is True
    for values in (S3, CLAIM):
        pod = watch_of(values)
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostPID", "hostNetwork", "nodeSelector", "runtimeClassName"} & set(pod)
        assert not any("hostPath" in volume for volume in pod["volumes"])
        assert pod["automountServiceAccountToken"] is False


def test_the_agents_rules_do_not_take_it_for_an_agent() -> None:
    documents = render(S3 | {"podMonitor": {"enabled": True}})
    agent = one(documents, "DaemonSet")["spec"]["selector"]["matchLabels"]
    labels = one(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]

    assert any(labels.get(key) != value for key, value in agent.items())
    policies = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "NetworkPolicy"}
    assert len(policies) == 2
    mine = policies["tachoscope-agent-watch"]
    assert mine["podSelector"]["matchLabels"].items() <= labels.items()
    assert {port["port"] for rule in mine["egress"] for port in rule["ports"]} == {53, 5353, 443}


def test_its_job_in_prometheus_is_the_one_that_its_alert_asks_for_and_no_agents() -> None:
    monitors = [one for one in render(S3 | {"podMonitor": {"enabled": True}}) if one["kind"] == "PodMonitor"]
    jobs = {f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in monitors}
    stalled, down = (
        next(one.expr for one in load(REPOSITORY / "alerts/events") if one.alert == name) for name in ("WatchStalled", "AgentDown")
    )
    (watch,) = set(re.findall(r'up\{job=~"([^"]+)"', stalled))
    ((agents, others),) = set(re.findall(r'up\{job=~"([^"]+)", job!~"([^"]+)"', down))

    assert len([job for job in jobs if re.fullmatch(watch, job)]) == 1
    assert len([job for job in jobs if re.fullmatch(agents, job) and not re.fullmatch(others, job)]) == 1
    assert len(jobs) == 2
