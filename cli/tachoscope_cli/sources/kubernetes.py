"""Asks the API server of Kubernetes for the objects and events of one namespace; it lists them, and does nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_analyzers.schedulers.common.untyped import at
from tachoscope_analyzers.schedulers.kubernetes import jobs as reader
from tachoscope_cli.common.options import print_notice
from tachoscope_core.errors import TachoscopeError

PAGE = 500
TIMEOUT_SECONDS = (5.0, 60.0)
"""To connect, and to wait for an answer."""

CUSTOM = (
    ("jobset.x-k8s.io", ("v1alpha2",), "jobsets"),
    ("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "workloads"),
    ("batch.volcano.sh", ("v1alpha1",), "jobs"),
    ("scheduling.volcano.sh", ("v1beta1",), "podgroups"),
    ("kubeflow.org", ("v1",), "pytorchjobs"),
    ("trainer.kubeflow.org", ("v1alpha1",), "trainjobs"),
)
"""Group, versions from the newest, and plural of the kinds that need not be installed."""

_NOT_FOUND, _FORBIDDEN = 404, 403


def allocations(name: str) -> list[Allocation]:
    """Return the allocations of a job.

    Args:
        name: namespace/name of the topmost object: of the TrainJob, not of the JobSet that was made for it.

    Raises:
        TachoscopeError: no such name, no configuration of a cluster, no answer, or no right to list pods.
    """
    namespace, slash, job = name.partition("/")
    if not (namespace and slash and job):
        raise TachoscopeError(f"{name!r} is not a Kubernetes job", fix="kubernetes:NAMESPACE/NAME")
    found = reader.allocations(_objects(namespace))
    of_job = [one for one in found if one.name == name]
    if not of_job:
        others = sorted({one.name for one in found})
        has = f"; it has {', '.join(others[:5])}" if others else ""
        raise TachoscopeError(f"no job {job} in the namespace {namespace}{has}", fix="kubectl get pods --namespace " + namespace)
    return of_job


def _objects(namespace: str) -> list[dict[str, Any]]:
    api = connect()
    from kubernetes import client

    core, custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
    lists: list[tuple[str, Callable[..., Any]]] = [
        ("pods", core.list_namespaced_pod),
        ("events", core.list_namespaced_event),
        ("jobs", client.BatchV1Api(api).list_namespaced_job),
    ]
    found = [one for plural, ask in lists for one in _listed(plural, ask, namespace)]
    for group, versions, plural in CUSTOM:
        for version in versions:
            of_kind = list(_listed(f"{plural}.{group}", custom.list_namespaced_custom_object, group, version, namespace, plural))
            found += of_kind
            if of_kind:
                break
    return found


def connect() -> Any:
    """Return a client of the API server that KUBECONFIG, or the pod, names.

    Raises:
        TachoscopeError: none is configured, or its client is not installed.
    """
    if importlib.util.find_spec("kubernetes") is None:
        raise TachoscopeError("asking Kubernetes needs its client", fix="pip install 'tachoscope[kubernetes]'")
    from kubernetes import client, config

    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
    try:
        settings = client.Configuration()
        if in_cluster:
            config.load_incluster_config(client_configuration=settings)
        else:
            # The client itself looks at the variable once, when it is imported.
            config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=settings)
    except config.ConfigException as error:
        raise TachoscopeError(f"no cluster is configured: {error}", fix="set KUBECONFIG, or run in a pod") from None
    settings.retries = 1
    return client.ApiClient(settings)


def _listed(plural: str, ask: Callable[..., Any], *place: str) -> Iterator[dict[str, Any]]:
    """Yield all objects of a kind in a namespace, page by page; none where the kind is not installed."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    more: dict[str, str] = {}
    while True:
        try:
            answer = ask(*place, limit=PAGE, _preload_content=False, _request_timeout=TIMEOUT_SECONDS, **more)
            page = json.loads(answer.data)
        except ApiException as error:
            if error.status == _NOT_FOUND:
                return
            if error.status == _FORBIDDEN and plural != "pods":
                print_notice(f"no permission to list {plural} in Kubernetes: their information is missing")
                return
            raise TachoscopeError(
                f"Kubernetes refused to list {plural}: {error.status} {error.reason}",
                fix="the rights needed: docs/guides/schedulers.md",
            ) from None
        except (HTTPError, OSError, ValueError) as error:
            raise TachoscopeError(f"Kubernetes does not answer: {error}", fix="kubectl cluster-info") from None
        yield from reader.flatten(page)
        rest = at(page, "metadata", "continue")
        if not rest:
            return
        more = {"_continue": str(rest)}
