"""Makes objects of Kubernetes and its queues as `kubectl get --output json` gives them; times are seconds after `EIGHT`.

Their fields are those of the APIs: https://kubernetes.io/docs/reference/kubernetes-api/, https://jobset.sigs.k8s.io/docs/reference/,
https://kueue.sigs.k8s.io/docs/reference/, https://github.com/volcano-sh/apis, https://www.kubeflow.org/docs/components/trainer/.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

EIGHT = datetime(2026, 5, 4, 8, tzinfo=UTC).timestamp()
"""Unix seconds; all times are told from here."""

Object = dict[str, Any]


def when(seconds: float) -> str:
    return datetime.fromtimestamp(EIGHT + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def metadata(kind: str, name: str, created: float, owner: Object | None = None, **labels: str) -> Object:
    found: Object = {
        "name": name,
        "namespace": "ml",
        "uid": f"{kind.lower()}-{name}-{created:g}",
        "creationTimestamp": when(created),
        "labels": {"app": "train", **labels},
    }
    if owner:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, "blockOwnerDeletion": True}
        found["ownerReferences"] = [{**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    return found


def condition(type_: str, at: float, reason: str = "Because", *, true: bool = True, message: str = "so it is") -> Object:
    return {
        "type": type_,
        "status": "True" if true else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": when(at),
    }


def template(gpus: int = 8, resource: str = "nvidia.com/gpu", **selector: str) -> Object:
    container = {
        "name": "train",
        "image": "registry.example.com/train:1",
        "resources": {"limits": {resource: str(gpus), "cpu": "64"}},
    }
    return {"containers": [container], "nodeSelector": selector} if selector else {"containers": [container]}


def pod(
    name: str,
    created: float,
    *,
    owner: Object | None = None,
    scheduled: float | None = None,
    ran: float | None = None,
    ended: float | None = None,
    exit_code: int = 0,
    reason: str = "",
    disrupted: str = "",
    restarts: int = 0,
    gpus: int = 8,
    labels: dict[str, str] | None = None,
) -> Object:
    """One pod: it waits for a node unless it was `scheduled`; `disrupted` is the reason of its DisruptionTarget."""
    specification: Object = {**template(gpus), "restartPolicy": "Never"}
    unscheduled = condition(
        "PodScheduled", created, "Unschedulable", true=False, message="0/4 nodes are available: 4 Insufficient GPUs."
    )
    status: Object = {"phase": "Pending", "conditions": [unscheduled]}
    if scheduled is not None:
        specification["nodeName"] = f"node-{name[-1]}"
        status["conditions"] = [condition("PodScheduled", scheduled)]
    if ran is not None:
        container = {
            "name": "train",
            "image": "train:1",
            "imageID": "train@sha256:0",
            "ready": ended is None,
            "restartCount": restarts,
        }
        failed = bool(exit_code or disrupted)
        status["phase"] = "Running" if ended is None else "Failed" if failed else "Succeeded"
        if ended is None:
            container["state"] = {"running": {"startedAt": when(ran)}}
        else:
            why = reason or ("Error" if failed else "Completed")
            end = {"exitCode": exit_code, "reason": why, "startedAt": when(ran), "finishedAt": when(ended)}
            container["state"] = {"terminated": end}
        if restarts:
            end = {"exitCode": 1, "reason": "Error", "startedAt": when(ran), "finishedAt": when(ran + 10)}
            container["lastState"] = {"terminated": end}
            container["state"] = {"running": {"startedAt": when(ran + 20)}} if ended is None else container["state"]
        status["containerStatuses"] = [container]
    if disrupted:
        status["conditions"].append(condition("DisruptionTarget", ended or created, disrupted))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata("pod", name, created, owner, **(labels or {})),
        "spec": specification,
        "status": status,
    }


def job(
    name: str, created: float, *conditions: Object, pods: int = 2, gpus: int = 8, owner: Object | None = None, **status: Any
) -> Object:
    specification = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "template": {"spec": {**template(gpus), "restartPolicy": "Never"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata("job", name, created, owner),
        "spec": specification,
        "status": {"startTime": when(created), **status, "conditions": list(conditions)},
    }


def indexed(index: int) -> dict[str, str]:
    return {"batch.kubernetes.io/job-completion-index": str(index)}


def jobset(name: str, created: float, *conditions: Object, pods: int = 2, restarts: int = 0, owner: Object | None = None) -> Object:
    inner = job("x", 0, pods=pods)["spec"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata("jobset", name, created, owner),
        "spec": {
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": inner}}],
        },
        "status": {"restarts": restarts, "conditions": list(conditions)},
    }


def of_jobset(index: int, restart: int = 0) -> dict[str, str]:
    return {
        **indexed(index),
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": str(restart),
    }


def workload(owner: Object, created: float, *conditions: Object, pods: int = 2, flavor: str = "", evictions: int = 0) -> Object:
    status: Object = {"conditions": list(conditions)}
    if flavor:
        assigned = {
            "name": "main",
            "flavors": {"nvidia.com/gpu": flavor},
            "resourceUsage": {"nvidia.com/gpu": str(8 * pods)},
            "count": pods,
        }
        status["admission"] = {"clusterQueue": "research", "podSetAssignments": [assigned]}
    if evictions:
        status["schedulingStats"] = {
            "evictions": [{"reason": "Preempted", "underlyingCause": "InClusterQueue", "count": evictions}]
        }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": metadata("workload", f"job-{owner['metadata']['name']}-1", created, owner),
        "spec": {
            "active": True,
            "queueName": "gpu",
            "podSets": [{"name": "main", "count": pods, "template": {"spec": template()}}],
        },
        "status": status,
    }


def event(about: Object, reason: str, at: float, message: str = "so it is", *, newer: bool = False) -> Object:
    who = {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "name": about["metadata"]["name"],
        "namespace": "ml",
        "uid": about["metadata"]["uid"],
    }
    named = {"kind": "Event", "metadata": metadata("event", f"{about['metadata']['name']}.{reason}.{at:g}".lower(), at)}
    if newer:
        by = {"reportingController": "kueue", "reportingInstance": "kueue-0", "action": reason}
        microseconds = when(at).replace("Z", ".000000Z")
        told = {"regarding": who, "reason": reason, "note": message, "eventTime": microseconds, "type": "Normal"}
        return {"apiVersion": "events.k8s.io/v1", **named, **told, **by}
    told = {"involvedObject": who, "reason": reason, "message": message, "count": 1, "type": "Normal"}
    return {"apiVersion": "v1", **named, **told, "firstTimestamp": when(at), "lastTimestamp": when(at)}


def volcano_job(name: str, created: float, *phases: tuple[str, float], pods: int = 2, retries: int = 0, reason: str = "") -> Object:
    """A Job of Volcano that went through the phases, each from its time on."""
    history = [{"status": phase, "lastTransitionTime": when(at)} for phase, at in phases]
    state = (
        {"phase": phases[-1][0], "reason": reason, "lastTransitionTime": when(phases[-1][1])} if phases else {"phase": "Pending"}
    )
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata("volcanojob", name, created),
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": pods,
            "queue": "default",
            "tasks": [{"name": "worker", "replicas": pods, "template": {"spec": template()}}],
        },
        "status": {"state": state, "conditions": history, "minAvailable": pods, "retryCount": retries},
    }


def podgroup(owner: Object, created: float, phase: str, *conditions: Object, pods: int = 2) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata("podgroup", f"{owner['metadata']['name']}-1", created, owner),
        "spec": {"minMember": pods, "queue": "default"},
        "status": {"phase": phase, "conditions": [{**one, "transitionID": "1"} for one in conditions]},
    }


def pytorchjob(name: str, created: float, *conditions: Object, workers: int = 1, **status: Any) -> Object:
    pod_template = {
        "template": {"spec": {"containers": [{**template()["containers"][0], "name": "pytorch"}]}},
        "restartPolicy": "OnFailure",
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata("pytorchjob", name, created),
        "spec": {
            "pytorchReplicaSpecs": {"Master": {"replicas": 1, **pod_template}, "Worker": {"replicas": workers, **pod_template}}
        },
        "status": {"conditions": [{**one, "lastUpdateTime": one["lastTransitionTime"]} for one in conditions], **status},
    }


def of_pytorchjob(kind: str, index: int) -> dict[str, str]:
    return {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": str(index)}


def trainjob(name: str, created: float, *conditions: Object) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata("trainjob", name, created),
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2, "image": "train:1"}},
        "status": {"conditions": list(conditions)},
    }


def listed(*objects: Object) -> Object:
    """The List that `kubectl get` makes of several objects."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(objects)}
