"""The JobSet of an attempt: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/, queued by Kueue where a queue is named."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tachoscope_cli.training_jobs.attempt import MASTER_VARIABLE
from tachoscope_cli.training_jobs.engine import AttemptRequest
from tachoscope_core.jobs.training_job import KubernetesOptions, TrainingJob

GROUP, VERSION, PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
REPLICATED_JOB = "node"
LABEL_ANNOTATION = "tachoscope.dev/attempt"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
HOSTNAME_LABEL = "kubernetes.io/hostname"
KEPT_SECONDS = 7 * 86400
"""After its end a JobSet is kept for its logs."""
GRACE_SECONDS = 60
_UNITS = {"K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}


def object_name(label: str) -> str:
    """Return the name of the JobSet of an attempt, the same each time: so it is created once.

    Short enough for the names of its pods, which are names in DNS: at most 63 characters.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", label.lower().removeprefix("tachoscope-"))[:20].strip("-")
    return f"tachoscope-{slug}-{hashlib.sha256(label.encode()).hexdigest()[:10]}"


def jobset(request: AttemptRequest, options: KubernetesOptions) -> dict[str, Any]:
    """Return the JobSet of an attempt: a gang of one pod a node, which starts once."""
    job, name = request.job, object_name(request.label)
    labels = {"app.kubernetes.io/managed-by": "tachoscope"}
    labels |= {QUEUE_LABEL: options.queue} if options.queue else {}
    labels |= {PRIORITY_LABEL: options.priority_class} if options.priority_class else {}
    limit = {"activeDeadlineSeconds": math.ceil(job.time_limit_seconds)} if job.time_limit_seconds else {}
    batch_job = {
        "parallelism": job.nodes,
        "completions": job.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        **limit,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "template": {"spec": _pod(request, options, name)},
    }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": options.namespace,
            "labels": labels,
            "annotations": {LABEL_ANNOTATION: request.label},
        },
        "spec": {
            **({"suspend": True} if options.queue else {}),  # until Kueue admits it
            "failurePolicy": {"maxRestarts": 0},  # the supervisor decides whether another attempt follows, and where
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "replicatedJobs": [{"name": REPLICATED_JOB, "replicas": 1, "template": {"spec": batch_job}}],
        },
    }


def _pod(request: AttemptRequest, options: KubernetesOptions, name: str) -> dict[str, Any]:
    volumes, mounts = _volumes(options)
    found: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [
            {
                "name": "training",
                "image": options.image,
                "command": list(request.command),
                "env": [{"name": MASTER_VARIABLE, "value": f"{name}-{REPLICATED_JOB}-0-0.{name}"}],
                "resources": _resources(request.job, options),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if options.service_account:
        found["serviceAccountName"] = options.service_account
    if options.node_selector:
        found["nodeSelector"] = dict(options.node_selector)
    if affinity := _affinity(request, name):
        found["affinity"] = affinity
    return found


def _resources(job: TrainingJob, options: KubernetesOptions) -> dict[str, Any]:
    limits = {
        options.gpu_resource: str(job.gpus_per_node) if job.gpus_per_node else "",
        "cpu": str(job.cpus_per_node) if job.cpus_per_node else "",
        "memory": _memory(job.memory_per_node),
    }
    given = {name: amount for name, amount in limits.items() if amount}
    return {"limits": given, "requests": dict(given)} if given else {}


def _memory(amount: str) -> str:
    """Return an amount of memory as Kubernetes has it; Slurm's units are powers of 1024, MiB without one."""
    return f"{amount.rstrip('KMGT')}{_UNITS.get(amount[-1], 'Mi')}" if amount else ""


def _volumes(options: KubernetesOptions) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    # Workers of a DataLoader pass batches through shared memory, of which a container has 64 MiB by default.
    sources: list[tuple[str, Mapping[str, Any]]] = [("/dev/shm", {"emptyDir": {"medium": "Memory"}})]  # noqa: S108
    sources += [(path, {"persistentVolumeClaim": {"claimName": claim}}) for path, claim in options.volumes.items()]
    sources += [(path, {"secret": {"secretName": secret}}) for path, secret in options.secret_volumes.items()]
    volumes = [{"name": f"volume-{number}", **source} for number, (_, source) in enumerate(sources)]
    return volumes, [{"name": f"volume-{number}", "mountPath": path} for number, (path, _) in enumerate(sources)]


def _affinity(request: AttemptRequest, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if request.excluded_hosts:
        found["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": _without(request.excluded_hosts)}]
            }
        }
    if request.job.nodes > 1:
        term = {"labelSelector": {"matchLabels": {JOBSET_LABEL: name}}, "topologyKey": HOSTNAME_LABEL}
        found["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return found


def _without(hosts: Sequence[str]) -> list[dict[str, Any]]:
    """Return what keeps pods off nodes. A field takes one value, and all fields of a term count."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [host]} for host in hosts]
