"""A fake cluster behind the fake API server: it places the pods of JobSets and Jobs on nodes, and runs each as a process here.

It keeps the rules on which the engine and the life cycle of nodes rely: all pods of a Job begin together, each on a node that is
ready and that taints, affinity and other pods leave to it; a Job fails with its first pod; pods of a lost node get the condition
DisruptionTarget. Images, volumes, resources and queues are not looked at.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from typing import Any

from fake_api_server import FakeApiServer

NODES = "/api/v1/nodes"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
_VARIABLE = re.compile(r"\$\((\w+)\)")
_Object = dict[str, Any]


@dataclass
class _Running:
    """The pods of an object, each with its process, by the name of the pod."""

    owner: _Object
    pods: dict[str, tuple[_Object, subprocess.Popen[bytes]]] = field(default_factory=dict)


class FakeCluster:
    """Nodes by these names, and one namespace."""

    def __init__(self, server: FakeApiServer, namespace: str, names: list[str]) -> None:
        self._server = server
        self._jobsets = server.lists.setdefault(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets", [])
        self._jobs = server.lists.setdefault(f"/apis/batch/v1/namespaces/{namespace}/jobs", [])
        self._pods = server.lists.setdefault(f"/api/v1/namespaces/{namespace}/pods", [])
        server.lists["/api/v1/pods"] = self._pods
        server.lists[NODES] = self._nodes = [_node(name) for name in names]
        self._running: dict[str, _Running] = {}

    def step(self) -> None:
        """Begin what can be placed, and note what has ended."""
        for one in [*self._jobsets, *self._jobs]:
            name = one["metadata"]["name"]
            if name not in self._running and "template" in _job_spec(one):
                self._begin(one)
        for running in self._running.values():
            self._note_ends(running)

    def lose(self, name: str) -> None:
        """Let a node end with all that runs on it."""
        node = self._node(name)
        node["spec"]["taints"].append(UNREACHABLE)
        _set_ready(node, "Unknown")
        for running in self._running.values():
            for pod, process in running.pods.values():
                if pod["spec"]["nodeName"] == name and process.poll() is None:
                    _kill(process)
                    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
                    pod["status"]["conditions"].append(target)

    def boot(self, name: str) -> None:
        """Let a lost node run again."""
        node = self._node(name)
        node["spec"]["taints"].remove(UNREACHABLE)
        _set_ready(node, "True")

    def placed(self, name: str) -> list[str]:
        """Return the nodes of a JobSet or Job."""
        return [pod["spec"]["nodeName"] for pod, _ in self._running[name].pods.values()]

    def close(self) -> None:
        """End all that runs."""
        for running in self._running.values():
            for _, process in running.pods.values():
                _kill(process)

    def _node(self, name: str) -> _Object:
        return next(one for one in self._nodes if one["metadata"]["name"] == name)

    def _begin(self, owner: _Object) -> None:
        """Place all pods of an object, or none."""
        spec, name = _job_spec(owner), owner["metadata"]["name"]
        free = [node["metadata"]["name"] for node in self._nodes if self._takes(node, spec["template"]["spec"])]
        count = spec.get("parallelism", 1)
        if len(free) < count:
            return
        running = self._running[name] = _Running(owner)
        is_set = owner in self._jobsets
        labels = {"jobset.sigs.k8s.io/jobset-name": name} if is_set else {"batch.kubernetes.io/job-name": name}
        if is_set:
            self._jobs.append({"metadata": {"name": f"{name}-node-0", "labels": labels}, "spec": {}, "status": {"conditions": []}})
        for index, node in enumerate(free[:count]):
            pod = f"{name}-node-0-{index}" if is_set else f"{name}-{index}"
            running.pods[pod] = self._started(pod, node, labels, spec["template"]["spec"], index)
            self._pods.append(running.pods[pod][0])

    def _takes(self, node: _Object, pod: _Object) -> bool:
        name = node["metadata"]["name"]
        tolerated = {one["key"] for one in pod.get("tolerations", [])}
        tainted = any(taint["key"] not in tolerated for taint in node["spec"]["taints"])
        in_use = any(one["spec"]["nodeName"] == name and one["status"]["phase"] == "Running" for one in self._pods)
        return node["status"]["conditions"][0]["status"] == "True" and not (tainted or in_use) and _has_affinity(name, pod)

    def _started(self, name: str, node: str, labels: _Object, spec: _Object, index: int) -> tuple[_Object, subprocess.Popen[bytes]]:
        (container,) = spec["containers"]
        values = {one["name"]: one["value"] for one in container.get("env", [])}
        words = [*container["command"], *container.get("args", [])]
        words = [_VARIABLE.sub(lambda found: values.get(found[1], found[0]), word) for word in words]
        environment = {**os.environ, **values, "JOB_COMPLETION_INDEX": str(index)}
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        pod = {
            "metadata": {"name": f"{name}-x", "labels": labels},
            "spec": {"hostname": name, "nodeName": node},
            "status": {"phase": "Running", "conditions": []},
        }
        return pod, process

    def _note_ends(self, running: _Running) -> None:
        codes = [process.poll() for _, process in running.pods.values()]
        if "conditions" in running.owner.get("status", {}) or (None in codes and not any(codes)):
            return
        for pod, process in running.pods.values():
            _kill(process)
            pod["status"]["phase"] = "Failed" if process.wait() else "Succeeded"
        disrupted = any(pod["status"]["conditions"] for pod, _ in running.pods.values())
        if running.owner in self._jobsets:
            job = next(one for one in self._jobs if one["metadata"]["name"] == f"{running.owner['metadata']['name']}-node-0")
            job["status"]["conditions"] = [_end(any(codes), disrupted, "Complete")]
        running.owner["status"] = {"conditions": [_end(any(codes), disrupted, "Completed")]}


def _job_spec(owner: _Object) -> _Object:
    """Return the specification of a Job, of a JobSet that of its only one."""
    spec: _Object = owner["spec"]
    return spec["replicatedJobs"][0]["template"]["spec"] if "replicatedJobs" in spec else spec


def _has_affinity(name: str, pod: _Object) -> bool:
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", [{"matchFields": []}])
    return any(all((name in one["values"]) == (one["operator"] == "In") for one in term["matchFields"]) for term in terms)


def _end(failed: bool, disrupted: bool, completed: str) -> _Object:
    reason = "PodFailurePolicy" if disrupted else "BackoffLimitExceeded" if failed else ""
    message = "Pod has condition DisruptionTarget matching FailJob rule" if disrupted else ""
    return {"type": "Failed" if failed else completed, "status": "True", "reason": reason, "message": message}


def _node(name: str) -> _Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"taints": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def _set_ready(node: _Object, status: str) -> None:
    """Change a node as its kubelet does: whoever read it before has an old version of it."""
    next(one for one in node["status"]["conditions"] if one["type"] == "Ready")["status"] = status
    node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
