"""Puts the objects and events of Kubernetes together to jobs: which pod belongs to which job, and what its owners say about it.

Objects are as `kubectl get --output json` gives them. Events are kept by the API server for an hour only, so that conditions
count first, and what neither tells is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_analyzers.schedulers.common.untyped import at, items, text
from tachoscope_analyzers.schedulers.kubernetes import allocations as gang
from tachoscope_analyzers.schedulers.kubernetes import batch_job, events, jobset, kubeflow, kueue, objects, pods, volcano
from tachoscope_analyzers.schedulers.kubernetes.observation import Observation

READERS: Mapping[tuple[str, str], Callable[[dict[str, Any]], Observation]] = {
    ("batch", "Job"): batch_job.observe,
    ("batch.volcano.sh", "Job"): volcano.observe,
    ("jobset.x-k8s.io", "JobSet"): jobset.observe,
    ("kubeflow.org", "PyTorchJob"): kubeflow.pytorchjob,
    ("kueue.x-k8s.io", "Workload"): kueue.observe,
    ("scheduling.volcano.sh", "PodGroup"): volcano.group,
    ("trainer.kubeflow.org", "TrainJob"): kubeflow.trainjob,
}
"""Who reads which kind, by API group."""

_POD = ("", "Pod")
_PART = ("batch", "Job")
"""What is often a part of a job only: it stands for the whole job where nothing owns it; all others always do."""

_NO_OWNERS = {"CronJob", "Node"}
"""Owners that are not the job: each run of a CronJob is one of its own."""

_POD_GROUP = "kueue.x-k8s.io/pod-group-name"


def flatten(document: object) -> list[dict[str, Any]]:
    """Return the objects of a document: a List and its items, or one object."""
    if not isinstance(document, dict):
        return []
    if objects.kind(document)[1].endswith("List") and isinstance(document.get("items"), list):
        # A typed list (PodList) leaves out the kind of its items.
        kind = {"apiVersion": document.get("apiVersion"), "kind": objects.kind(document)[1].removesuffix("List")}
        return [one if one.get("kind") else {**kind, **one} for one in items(document, "items") if isinstance(one, dict)]
    return [document]


def allocations(documents: Iterable[dict[str, Any]]) -> list[Allocation]:
    """Return the allocations of all jobs among the objects, those of a job in the order of time.

    The same object may come several times, as it was at several times: moments that it no longer tells are taken from before.
    Objects that belong to no job, such as nodes, are left out; so are pods that ask for no accelerator and belong to nothing
    that is read here.
    """
    versions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in documents:
        versions[objects.key(one)].append(one)
    by_key = {key: max(several, key=_version) for key, several in versions.items()}
    about = events.by_object(one for several in versions.values() for one in several)
    jobs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in by_key.values():
        if objects.kind(one) in READERS or objects.kind(one) == _POD:
            jobs[_root(one, by_key)[0]].append(one)
    found = [one for root, members in jobs.items() for one in _job(root, members, by_key, versions, about)]
    return sorted(found, key=lambda one: (one.submitted or one.placed or 0.0, one.name, one.attempt))


def _version(document: object) -> int:
    # https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions; of equal ones the first read is taken.
    version = text(at(document, "metadata", "resourceVersion"))
    return int(version) if version.isdecimal() and len(version) < 20 else 0


def _root(document: dict[str, Any], by_key: Mapping[str, dict[str, Any]]) -> tuple[str, str]:
    """Return key and name of the topmost owner, whether it is among the objects or only named by one of them."""
    seen = set()
    while objects.key(document) not in seen:
        seen.add(objects.key(document))
        owner = objects.owner(document)
        if not owner or text(owner.get("kind")) in _NO_OWNERS:
            break
        above = by_key.get(text(owner.get("uid")))
        if not above:
            name = f"{objects.name(document).partition('/')[0]}/{text(owner.get('name'))}"
            return text(owner.get("uid")) or name, name
        document = above
    group = objects.labels(document).get(_POD_GROUP)
    if group:
        name = f"{objects.name(document).partition('/')[0]}/{group}"
        return name, name
    return objects.key(document), objects.name(document)


def _job(
    root: str,
    members: list[dict[str, Any]],
    by_key: Mapping[str, dict[str, Any]],
    versions: Mapping[str, list[dict[str, Any]]],
    about: Mapping[str, list[dict[str, Any]]],
) -> list[Allocation]:
    its_pods = [pods.read(one, about.get(objects.key(one), ())) for one in members if objects.kind(one) == _POD]
    if len(its_pods) == len(members) and not any(pod.accelerators for pod in its_pods):
        return []
    head = by_key.get(root)
    tells = [one for one in members if objects.kind(one) in READERS and (one is head or objects.kind(one) != _PART)]
    told = []
    for one in tells:
        read = READERS[objects.kind(one)]
        told += [read(one), *(Observation(marks=read(older).marks) for older in versions[objects.key(one)] if older is not one)]
        told.append(events.observe(about.get(objects.key(one), [])))
    # Where the owner is not known, what stands for the whole job was made with it; a pod that has an owner can be of any attempt.
    first = [head] if head is not None else [one for one in members if one in tells or not objects.owner(one)]
    created = [time for one in first if (time := objects.seconds(at(one, "metadata", "creationTimestamp"))) is not None]
    return gang.allocations(_root(members[0], by_key)[1], submitted=min(created, default=None), told=told, pods=its_pods)
