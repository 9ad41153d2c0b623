"""The chart's monitors: a PodMonitor or a ServiceMonitor, which make the same series of the same pods."""

from __future__ import annotations

from typing import Any

from kubernetes_rules import schema_faults
from rendering import EACH_VERSION, VERSIONS, one, render, template

VALUES: dict[str, Any] = {
    "enabled": True,
    "labels": {"release": "prometheus"},
    "interval": "30s",
    "basicAuth": {"username": {"name": "s", "key": "u"}, "password": {"name": "s", "key": "p"}},
    "tlsConfig": {"serverName": "agent"},
    "relabelings": [{"action": "replace", "targetLabel": "cluster", "replacement": "training-1"}],
    "metricRelabelings": [{"action": "labeldrop", "regex": "mig_profile"}],
}
AROUND = {"webConfig": {"existingSecret": "web"}, "store": {"url": "s3://bucket/x"}, "watch": {"enabled": True}}


def documents(kind: str, version: str = VERSIONS[-1]) -> list[dict[str, Any]]:
    return render({kind[0].lower() + kind[1:]: VALUES} | AROUND, version)


def monitors(found: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


@EACH_VERSION
def test_what_a_service_monitor_brings_is_valid(version: str) -> None:
    assert [fault for one in documents("ServiceMonitor", version) for fault in schema_faults(one, version)] == []


def test_unless_told_so_there_is_neither() -> None:
    assert not {"PodMonitor", "ServiceMonitor", "Service"} & {one["kind"] for one in render()}


def test_both_at_once_are_refused_as_each_pod_would_be_scraped_twice() -> None:
    done = template(values={"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}})

    assert done.returncode != 0
    assert "switch one of them off" in done.stderr


def test_a_service_monitor_leads_through_a_headless_service_to_the_pods_and_their_port() -> None:
    found = documents("ServiceMonitor")
    services = {one["metadata"]["name"]: one for one in found if one["kind"] == "Service"}
    for name, workload in (("tachoscope-agent", "DaemonSet"), ("tachoscope-agent-watch", "Deployment")):
        wanted = monitors(found, "ServiceMonitor")[name]["spec"]["selector"]["matchLabels"].items()
        (service,) = (one for one in services.values() if wanted <= one["metadata"]["labels"].items())
        pod = one(found, workload)["spec"]["template"]
        assert service["metadata"]["name"] == name
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (port,), (exposed,) = service["spec"]["ports"], pod["spec"]["containers"][0]["ports"]
        assert (port["name"], port["targetPort"], port["port"]) == ("metrics", exposed["name"], exposed["containerPort"])
    assert services["tachoscope-agent"]["spec"]["clusterIP"] == "None"


def test_both_kinds_scrape_the_same_way_and_name_job_and_instance_alike() -> None:
    of_pods, of_services = (monitors(documents(kind), kind) for kind in ("PodMonitor", "ServiceMonitor"))
    assert set(of_pods) == set(of_services) == {"tachoscope-agent", "tachoscope-agent-watch"}
    for name, pods in of_pods.items():
        services = of_services[name]
        assert services["metadata"]["labels"] == pods["metadata"]["labels"]
        assert services["metadata"]["labels"]["release"] == "prometheus"
        (by_pod,), (by_service,) = pods["spec"]["podMetricsEndpoints"], services["spec"]["endpoints"]
        # The operator names a PodMonitor's job so. Of a ServiceMonitor it takes the Service's name, and adds that as `service`,
        # which Prometheus would put in the place of the agent's own label.
        for relabeling in (
            {"action": "replace", "targetLabel": "job", "replacement": f"tachoscope/{name}"},
            {"action": "labeldrop", "regex": "service"},
        ):
            by_service["relabelings"].remove(relabeling)
        assert by_service == by_pod
        assert by_pod["interval"] == "30s"
        assert by_pod["scheme"] == "https"
        assert by_pod["relabelings"][-1]["replacement"] == "training-1"
        assert ("instance" in {one["targetLabel"] for one in by_pod["relabelings"]}) == (name == "tachoscope-agent")
