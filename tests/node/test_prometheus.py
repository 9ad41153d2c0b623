"""A real Prometheus scrapes the agent as a PodMonitor would have it: our labels arrive under their own names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from processes import agent_process, ask_prometheus, prometheus, wait_for
from spool_writing import Process
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import NAMESPACE

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")

# What the Prometheus operator makes of a PodMonitor; what service discovery would say is in the target's own labels.
META = {
    "__meta_kubernetes_namespace": "monitoring",
    "__meta_kubernetes_pod_name": "tachoscope-agent-x7k2p",
    "__meta_kubernetes_pod_container_name": "agent",
    "__meta_kubernetes_pod_node_name": "node-1",
}
RELABEL = [
    {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"},
    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
    {"target_label": "job", "replacement": "monitoring/tachoscope-agent"},
    {"target_label": "endpoint", "replacement": "metrics"},
]


def test_our_labels_arrive_under_their_own_names(tmp_path: Path) -> None:
    rank = Process(tmp_path / "spool" / "run")
    rank.start(pid=os.getpid())
    with agent_process(tmp_path) as agent:
        rank.step(forward=0.25)
        wait_for(lambda: "tachoscope_steps_total{" in agent.get("/metrics"))
        job = {
            "job_name": "podMonitor/monitoring/tachoscope-agent/0",
            "honor_labels": False,
            "static_configs": [{"targets": [agent.url.removeprefix("http://")], "labels": META}],
            "relabel_configs": RELABEL,
        }
        with prometheus(tmp_path, job) as port:

            def series() -> list[dict[str, str]]:
                found: list[dict[str, str]] = ask_prometheus(port, "series", **{"match[]": '{__name__=~"tachoscope_.*"}'})
                assert any(one["__name__"] == "tachoscope_steps_total" for one in found)
                return found

            found = wait_for(series)
            asked = 'tachoscope_steps_total{training_job="job",rank="0"}'
            (steps,) = wait_for(lambda: ask_prometheus(port, "query", query=asked)["result"])  # a scrape may fail in between

    scraped = {"__name__", "namespace", "container", "pod", "job", "endpoint", "instance"}
    for one in found:
        name = one["__name__"]
        metric = BY_NAME.get(name) or BY_NAME[name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")]
        assert set(one) - scraped - {"le", NAMESPACE} == set(metric.labels) - {NAMESPACE}
        assert one["pod"] == "tachoscope-agent-x7k2p"
    assert steps["value"][1] == "1"
