"""Taint and condition of a node, against a fake API server; there is no cluster behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fake_api_server
from fake_api_server import TOKEN, FakeApiServer
from tachoscope_core.errors import TachoscopeError
from tachoscope_watch.nodes.kubernetes import CONDITION, TAINT, KubernetesNodes

NODES = "/api/v1/nodes"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server.running() as fake:
        fake.lists[NODES] = [_node("a"), _node("b"), _node("c")]
        fake.lists["/api/v1/pods"] = []
        yield fake


@pytest.fixture
def cluster(server: FakeApiServer, tmp_path: Path) -> KubernetesNodes:
    (tmp_path / "token").write_text(TOKEN)
    return KubernetesNodes(server.url, tmp_path)


def _node(name: str) -> dict[str, Any]:
    taints = [{"key": "others", "effect": "NoExecute"}]
    metadata = {"name": name, "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}, "status": {"conditions": []}}


def test_a_node_is_tainted_with_its_reason_and_returned_and_the_taints_of_others_stay(
    server: FakeApiServer, cluster: KubernetesNodes
) -> None:
    cluster.drain("b", "Xid 79")
    drained = cluster.nodes(1.0, {"b"})
    node = server.object_at(f"{NODES}/b")
    assert node is not None
    keys, condition = [one["key"] for one in node["spec"]["taints"]], node["status"]["conditions"][0]
    cluster.resume("b")

    assert {name: one.drained_by for name, one in drained.items()} == {"a": "", "b": "us", "c": ""}
    assert keys == ["others", TAINT]
    assert (condition["type"], condition["status"], condition["message"]) == (CONDITION, "True", "tachoscope: Xid 79")
    assert [one["key"] for one in node["spec"]["taints"]] == ["others"] and node["status"]["conditions"][0]["status"] == "False"


def test_a_node_is_busy_while_pods_run_on_it_that_are_not_of_a_daemon_set(server: FakeApiServer, cluster: KubernetesNodes) -> None:
    agent = {"metadata": {"name": "agent", "ownerReferences": [{"kind": "DaemonSet"}]}, "status": {"phase": "Running"}}
    training = {"metadata": {"name": "rank-0"}, "status": {"phase": "Running"}}
    kind = {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "b"}}
    elsewhere = kind | training | {"spec": {"nodeName": "c"}}
    server.lists["/api/v1/pods"] = [kind | agent, elsewhere]
    alone = cluster.nodes(1.0, {"b"})["b"].busy
    server.lists["/api/v1/pods"] = [kind | agent, elsewhere, kind | training]

    assert (alone, cluster.nodes(2.0, {"b"})["b"].busy) == (False, True)


def test_a_taint_that_another_sets_meanwhile_is_not_undone(server: FakeApiServer, cluster: KubernetesNodes) -> None:
    node, patched = server.object_at(f"{NODES}/b"), server.patch
    assert node is not None
    theirs = {"key": "theirs", "effect": "NoSchedule"}

    def after_theirs(path: str, body: dict[str, Any], kind: str, token: str) -> tuple[int, dict[str, Any]]:
        if not path.endswith("/status") and theirs not in node["spec"]["taints"]:
            node["spec"]["taints"].append(theirs)
            node["metadata"]["resourceVersion"] = "77"
        return patched(path, body, kind, token)

    server.patch = after_theirs  # type: ignore[method-assign]
    with pytest.raises(TachoscopeError, match="PATCH /api/v1/nodes/b: it answers 409"):
        cluster.drain("b", "x")
    cluster.drain("b", "x")

    assert [one["key"] for one in node["spec"]["taints"]] == ["others", "theirs", TAINT]


def test_a_refusal_names_what_was_asked_for(server: FakeApiServer, cluster: KubernetesNodes) -> None:
    server.forbidden.add(f"{NODES}/b")

    with pytest.raises(TachoscopeError, match="Kubernetes: GET /api/v1/nodes/b: it answers 403"):
        cluster.drain("b", "x")
