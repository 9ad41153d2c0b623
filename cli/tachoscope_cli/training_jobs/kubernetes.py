"""Attempts as JobSets of Kubernetes. The name of the JobSet follows from the attempt's label, so none is created twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tachoscope_analyzers.schedulers.common.untyped import at, items, text
from tachoscope_analyzers.schedulers.kubernetes.objects import conditions, labels
from tachoscope_cli.sources.kubernetes import TIMEOUT_SECONDS, connect
from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState, TooFewHostsError
from tachoscope_cli.training_jobs.kubernetes_objects import (
    GROUP,
    JOBSET_LABEL,
    LABEL_ANNOTATION,
    PLURAL,
    VERSION,
    jobset,
    object_name,
)
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import KubernetesOptions

_NOT_FOUND, _CONFLICT, _UNAUTHORIZED, _FORBIDDEN = 404, 409, 401, 403
_LOST = {"DeletionByTaintManager", "DeletionByPodGC"}
"""Reasons of a pod's DisruptionTarget that mean its node: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/."""
_MOST_PODS = 10_000


class _StatusError(TachoscopeError):
    """The API server answered with an error."""

    def __init__(self, message: str, status: int, *, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.status = status


class KubernetesEngine:
    """Creates JobSets in one namespace."""

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options
        self._api: Any = None

    def find(self, label: str) -> str | None:
        """Return the name of the attempt's JobSet."""
        name = object_name(label)
        found = self._jobset(name)
        if found is not None and labels(found).get(LABEL_ANNOTATION) != label:
            raise TachoscopeError(
                f"JobSet {self._place(name)} is not of attempt {label}", fix="delete it, or use another namespace"
            )
        return name if found is not None else None

    def rendered(self, request: AttemptRequest) -> str:
        """Return the JobSet."""
        import yaml

        return yaml.safe_dump(jobset(request, self._options), sort_keys=False, width=120)

    def submit(self, request: AttemptRequest) -> str:
        """Create the JobSet of an attempt."""
        if request.excluded_hosts and self._too_few(request):
            raise TooFewHostsError(f"fewer than {request.job.nodes} nodes are left without {', '.join(request.excluded_hosts)}")
        body = jobset(request, self._options)
        try:
            self._custom("create", "create_namespaced_custom_object", PLURAL, body=body)
        except _StatusError as error:
            found = self.find(request.label) if error.status == _CONFLICT else None
            if found is None:
                raise
        return str(body["metadata"]["name"])

    def state(self, engine_id: str) -> EngineState:
        """Return what the JobSet's conditions say; of one that failed, what its Jobs and pods say."""
        found = self._jobset(engine_id)
        if found is None:
            return EngineState("ended", "the JobSet was deleted", cancelled=True)
        said = conditions(found)
        completed, failed, suspended = said.get("Completed"), said.get("Failed"), said.get("Suspended")
        if failed is not None and failed.true:
            return self._failed(engine_id, failed.text())
        if completed is not None and completed.true:
            return EngineState("ended", "Completed")
        if at(found, "spec", "suspend") is True:
            return EngineState("queued", suspended.text() if suspended is not None else "")
        return EngineState("running")

    def hosts(self, engine_id: str) -> Mapping[str, str]:
        """Return the nodes by the names of the pods, once all pods have one."""
        found = self._jobset(engine_id)
        nodes = sum(int(at(one, "template", "spec", "parallelism") or 0) for one in items(found, "spec", "replicatedJobs"))
        pods = self._pods(engine_id)
        names = {
            text(at(pod, "spec", "hostname")) or text(at(pod, "metadata", "name")): text(at(pod, "spec", "nodeName"))
            for pod in pods
        }
        return names if len(names) == nodes and all(names.values()) else {}

    def output(self, engine_id: str, log: Path) -> str:  # noqa: ARG002
        """Return the command that shows the logs of the pods."""
        return f"kubectl logs --namespace {self._options.namespace} --selector {JOBSET_LABEL}={engine_id} --prefix"

    def cancel(self, engine_id: str) -> None:
        """Delete the JobSet: it is gone once its pods are."""
        try:
            self._custom("delete", "delete_namespaced_custom_object", PLURAL, engine_id, body={"propagationPolicy": "Foreground"})
        except _StatusError as error:
            if error.status != _NOT_FOUND:
                raise

    def _failed(self, name: str, reason: str) -> EngineState:
        ends = [one for job in self._jobs(name) if (one := conditions(job).get("Failed")) is not None and one.true]
        evicted, lost = False, []
        for pod in self._pods(name):
            target = conditions(pod).get("DisruptionTarget")
            if target is not None and target.true:
                evicted = True
                reason = f"{target.reason} of {text(at(pod, 'metadata', 'name'))}"
                lost += [text(at(pod, "spec", "nodeName"))] if target.reason in _LOST else []
        over_time = next((one for one in ends if one.reason == "DeadlineExceeded"), None)
        disrupted = next((one for one in ends if one.reason == "PodFailurePolicy" and "DisruptionTarget" in one.message), None)
        why = over_time or (disrupted if not evicted else None)
        by_engine = evicted or why is not None
        return EngineState("ended", why.text() if why else reason, tuple(dict.fromkeys(filter(None, lost))), by_engine=by_engine)

    def _too_few(self, request: AttemptRequest) -> bool:
        """Return whether too few nodes are left; False where nodes may not be listed."""
        wanted = ",".join(f"{name}={value}" for name, value in self._options.node_selector.items())
        ask = self._interface("CoreV1Api").list_node
        try:
            nodes = items(self._answer("list nodes", ask, label_selector=wanted), "items")
        except _StatusError as error:
            if error.status == _FORBIDDEN:
                return False
            raise
        ready = [one for one in nodes if (said := conditions(one).get("Ready")) is not None and said.true]
        left = [one for one in ready if text(at(one, "metadata", "name")) not in request.excluded_hosts]
        return len(left) < request.job.nodes

    def _jobset(self, name: str) -> dict[str, Any] | None:
        try:
            return self._custom("read", "get_namespaced_custom_object", PLURAL, name)
        except _StatusError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def _pods(self, name: str) -> list[Any]:
        return self._listed("pods", self._interface("CoreV1Api").list_namespaced_pod, name)

    def _jobs(self, name: str) -> list[Any]:
        return self._listed("jobs", self._interface("BatchV1Api").list_namespaced_job, name)

    def _listed(self, what: str, ask: Callable[..., Any], name: str) -> list[Any]:
        selector = f"{JOBSET_LABEL}={name}"
        return items(self._answer(f"list {what}", ask, self._options.namespace, label_selector=selector, limit=_MOST_PODS), "items")

    def _custom(self, verb: str, method: str, *rest: str, body: object = None) -> dict[str, Any]:
        ask = getattr(self._interface("CustomObjectsApi"), method)
        more = {} if body is None else {"body": body}
        return self._answer(f"{verb} jobsets", ask, GROUP, VERSION, self._options.namespace, *rest, **more)

    def _answer(self, what: str, ask: Callable[..., Any], *place: str, **more: Any) -> dict[str, Any]:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = ask(*place, _preload_content=False, _request_timeout=TIMEOUT_SECONDS, **more)
            found: dict[str, Any] = json.loads(answer.data)
        except ApiException as error:
            if error.status == _UNAUTHORIZED:
                self._api = None  # the next call reads the credentials again
            raise _StatusError(
                f"Kubernetes refused to {what} in namespace {self._options.namespace}: {error.status} {_said(error)}",
                error.status,
                fix="the rights needed: docs/guides/training-jobs.md",
            ) from None
        except (HTTPError, OSError, ValueError) as error:
            raise TachoscopeError(f"Kubernetes does not answer: {error}", fix="kubectl cluster-info") from None
        return found

    def _interface(self, name: str) -> Any:
        """Return an interface of the client, such as CoreV1Api."""
        if self._api is None:
            self._api = connect()
        from kubernetes import client

        return getattr(client, name)(self._api)

    def _place(self, name: str) -> str:
        return f"{self._options.namespace}/{name}"


def _said(error: Any) -> str:
    """Return the message of a Status, or the reason of the HTTP answer."""
    try:
        return str(json.loads(error.body)["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
