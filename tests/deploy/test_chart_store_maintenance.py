"""The chart's CronJob for the store: it runs what `tachoscope store` offers, with the rights of none."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from kubernetes_rules import pod_faults, schema_faults
from rendering import EACH_VERSION, one, render, template
from tachoscope_cli.app import app
from tachoscope_core.storage.store import Store

S3 = {"store": {"url": "s3://bucket/x"}, "storeMaintenance": {"enabled": True}}
CLAIM = {"store": {"existingClaim": "shared"}, "storeMaintenance": {"enabled": True}}
KEEP = {"records": "90d", "metrics": "30d", "traces": "20GB", "nodes": "7d"}


def pod_of(values: dict[str, Any]) -> dict[str, Any]:
    return one(render(values), "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def with_keep(values: dict[str, Any], **keep: str) -> dict[str, Any]:
    return values | {"storeMaintenance": {"enabled": True, "keep": keep}}


@pytest.mark.parametrize("values", [S3, CLAIM, with_keep(S3, **KEEP)])
@EACH_VERSION
def test_what_is_rendered_is_valid(values: dict[str, Any], version: str) -> None:
    assert [
        fault for document in render(values, version) for fault in schema_faults(document, version) + pod_faults(document)
    ] == []


def test_it_is_off_by_default_and_a_store_that_nodes_do_not_share_is_refused() -> None:
    assert not any(document["kind"] == "CronJob" for document in render({"store": {"url": "s3://bucket/x"}}))
    done = template(values={"store": {}, "storeMaintenance": {"enabled": True}})
    assert done.returncode != 0 and "needs a store that all nodes share" in done.stderr


def test_its_commands_are_those_of_the_command_line(tmp_path: Any) -> None:
    """Without `keep` nothing is removed; with it, compaction comes first."""
    (compact,) = pod_of(CLAIM)["containers"]
    assert compact["args"] == ["store", "compact", "--store", "/store"] and "initContainers" not in pod_of(CLAIM)

    pod = pod_of(with_keep(S3, **KEEP))

    assert [container["args"][1] for container in (*pod["initContainers"], *pod["containers"])] == ["compact", "prune"]
    Store(str(tmp_path)).write_node("n", b"{}")
    for container in (*pod["initContainers"], *pod["containers"]):
        args = [str(tmp_path) if word == "s3://bucket/x" else word for word in container["args"]]
        assert CliRunner().invoke(app, args).exit_code == 0


@pytest.mark.parametrize("keep", [{"records": "90 days"}, {"traces": "much"}, {"logs": "1d"}])
def test_what_the_command_line_would_refuse_the_chart_refuses(keep: dict[str, str]) -> None:
    assert template(values=with_keep(S3, **keep)).returncode != 0
