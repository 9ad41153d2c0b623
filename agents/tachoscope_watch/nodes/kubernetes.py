"""Taints nodes of Kubernetes and sets a condition on them: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.

Pods that run go on. A taint is replaced only in the version of the node that was read, so that another's change is never undone.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.http_client import HttpError, request
from tachoscope_watch.nodes.actuator import MARK, reason_text
from tachoscope_watch.nodes.preflight_job import preflight_job
from tachoscope_watch.nodes.states import Seen

TAINT = "tachoscope.dev/quarantined"
CONDITION = "TachoscopeQuarantined"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_SECONDS = 30.0
_MOST_BYTES = 64 << 20
_PAGE = 500
_ALREADY_EXISTS = 409
_DONE = {"Succeeded", "Failed"}


class KubernetesNodes:
    """The nodes of the cluster that this pod runs in, by its service account.

    Args:
        url, account: of the API server, and of the account's token and authority; as Kubernetes tells its pods.
        test_pod: PodSpec that tests a node, in the account's namespace; empty: the nodes ask for their tests themselves.
    """

    name = "kubernetes"

    def __init__(self, url: str = "", account: Path = _ACCOUNT, test_pod: Mapping[str, Any] | None = None) -> None:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not url and not host:
            raise TachoscopeError("this is not a pod of Kubernetes", fix="run the watch in the cluster, with a service account")
        self._url = url or f"https://{f'[{host}]' if ':' in host else host}:{port}"
        self._account = account
        self._test_pod = test_pod or {}

    @property
    def starts_tests(self) -> bool:
        return bool(self._test_pod)

    def nodes(self, now: float, out: Collection[str]) -> dict[str, Seen]:
        """Return all nodes; of those that are out also whether pods run on them."""
        found = {}
        for node in self._list("/api/v1/nodes", ""):
            name = node["metadata"]["name"]
            taint = next((one for one in node.get("spec", {}).get("taints") or [] if one["key"] == TAINT), None)
            cordoned = bool(node.get("spec", {}).get("unschedulable"))
            busy = name in out and self._is_busy(name)
            drained_by = "us" if taint else "others" if cordoned else ""
            reason = f"{MARK}tainted" if taint else "unschedulable" if cordoned else ""
            found[name] = Seen(name, now, drained_by, busy, reason)  # type: ignore[arg-type]
        return found

    def drain(self, node: str, reason: str) -> None:
        """Set the condition, then the taint: a node that is tainted has its reason."""
        self._set_condition(node, "True", "Quarantined", reason_text(reason))
        self._set_taint(node, tainted=True)

    def resume(self, node: str) -> None:
        """Remove the taint, then the condition's truth."""
        self._set_taint(node, tainted=False)
        self._set_condition(node, "False", "Returned", f"{MARK}returned")

    def test(self, node: str, test: str, seconds: float) -> None:
        """Create the Job of a test, unless it was created before."""
        job = preflight_job(node, test, self._test_pod, TAINT, seconds)
        path = f"/apis/batch/v1/namespaces/{quote(self._namespace(), safe='')}/jobs"
        self._ask("POST", path, job, "application/json", or_status=_ALREADY_EXISTS)

    def _namespace(self) -> str:
        try:
            return (self._account / "namespace").read_text().strip()
        except OSError as error:
            raise TachoscopeError(f"the namespace of this pod is not known: {error}", fix="run the watch in the cluster") from None

    def _set_taint(self, node: str, *, tainted: bool) -> None:
        path = f"/api/v1/nodes/{quote(node, safe='')}"
        known = self._ask("GET", path)
        others = [one for one in known.get("spec", {}).get("taints") or [] if one["key"] != TAINT]
        taints = [*others, {"key": TAINT, "value": "true", "effect": "NoSchedule"}] if tainted else others
        version = {"resourceVersion": known["metadata"]["resourceVersion"]}
        self._ask("PATCH", path, {"metadata": version, "spec": {"taints": taints}}, "application/merge-patch+json")

    def _set_condition(self, node: str, status: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        condition = {"type": CONDITION, "status": status, "reason": reason, "message": message, **times}
        path = f"/api/v1/nodes/{quote(node, safe='')}/status"
        self._ask("PATCH", path, {"status": {"conditions": [condition]}}, "application/strategic-merge-patch+json")

    def _is_busy(self, node: str) -> bool:
        """Return whether a pod runs there that is not of a DaemonSet, whose pods stay."""
        pods = self._list("/api/v1/pods", f"&fieldSelector=spec.nodeName%3D{quote(node, safe='')}")
        return any(
            pod.get("status", {}).get("phase") not in _DONE
            and not any(owner.get("kind") in {"DaemonSet", "Node"} for owner in pod["metadata"].get("ownerReferences") or [])
            for pod in pods
        )

    def _list(self, path: str, query: str) -> Iterator[dict[str, Any]]:
        more = ""
        while True:
            page = self._ask("GET", f"{path}?limit={_PAGE}{query}{more}")
            yield from page.get("items") or []
            rest = page.get("metadata", {}).get("continue")
            if not rest:
                return
            more = f"&continue={quote(str(rest), safe='')}"

    # or_status: an HTTP status that is not an error here.
    def _ask(self, method: str, path: str, body: object = None, kind: str = "", *, or_status: int = 0) -> dict[str, Any]:
        try:
            token = (self._account / "token").read_text().strip()  # read each time: it is renewed every hour
            authority = self._account / "ca.crt"
            tls = ssl.create_default_context(cafile=str(authority)) if self._url.startswith("https:") else None
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"} | ({"Content-Type": kind} if kind else {})
            answer = request(
                f"{self._url}{path}",
                seconds=_TIMEOUT_SECONDS,
                most_bytes=_MOST_BYTES,
                method=method,
                body=json.dumps(body).encode() if body is not None else None,
                headers=headers,
                tls=tls,
            )
            answer = answer if answer.status == or_status else answer.raise_for_status()
            found: dict[str, Any] = json.loads(answer.content)
        except (HttpError, OSError, ValueError) as error:
            what = path.partition("?")[0]
            raise TachoscopeError(f"Kubernetes: {method} {what}: {error}", fix="the rights needed: docs/guides/nodes.md") from None
        return found
