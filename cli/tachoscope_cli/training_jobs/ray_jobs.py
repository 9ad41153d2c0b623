"""Attempts as jobs of a Ray cluster, over its REST API: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html.

The label of the attempt is the id of the submission, so none is submitted twice.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tachoscope_analyzers.schedulers.common.untyped import at, items, text
from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState, TooFewHostsError
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import RayOptions
from tachoscope_core.net.http_client import HttpError, HttpResponse, request

TIMEOUT_SECONDS = 60.0
MOST_BYTES = 64 << 20
"""A summary of the nodes has some 14 kB for each."""
STOP_SECONDS = 60
"""Between Ray's SIGTERM and SIGKILL; its default of 3 s is too short for a last checkpoint."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_STARTS = {"JOB_SUPERVISOR_ACTOR_START_TIMEOUT", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"}
"""Errors of a job that Ray did not place."""


class RayEngine:
    """Submits attempts to one Ray cluster."""

    def __init__(self, options: RayOptions) -> None:
        self._options = options

    def find(self, label: str) -> str | None:
        """Return the label if Ray knows the submission."""
        return label if self._job(label) is not None else None

    def rendered(self, request: AttemptRequest) -> str:
        """Return the body of the request to /api/jobs/."""
        return json.dumps(_submission(request), indent=2) + "\n"

    def submit(self, request: AttemptRequest) -> str:
        """Submit the driver of an attempt."""
        body = _submission(request)
        if request.excluded_hosts:
            body["entrypoint_label_selector"] = self._without(request)
        answer = self._ask("/api/jobs/", body)
        if answer.status != 200 and self.find(request.label) is None:  # Ray answers 500 where the submission exists
            raise TachoscopeError(f"Ray refused attempt {request.number} of {request.job.name}: {_last_line(answer)}")
        return request.label

    def state(self, engine_id: str) -> EngineState:
        """Return the status of the job."""
        found = self._job(engine_id)
        if found is None:
            gone = "Ray does not know it any more: the cluster was restarted, or the job deleted"
            return EngineState("ended", gone, by_engine=True)
        status, error = text(found.get("status")), text(found.get("error_type"))
        reason = text(found.get("message")).strip().partition("\n")[0][:300]
        if status == "PENDING":
            return EngineState("queued", reason)
        if status == "RUNNING":
            return EngineState("running")
        if status == "STOPPED":
            return EngineState("ended", reason, cancelled=True)
        if status not in {"SUCCEEDED", "FAILED"}:
            raise TachoscopeError(f"Ray reports the status {status[:40]!r} of job {engine_id}, which is not known")
        lost = self._lost(found) if error == "JOB_SUPERVISOR_ACTOR_DIED" else ()
        return EngineState("ended", reason or status, lost, by_engine=bool(lost) or error in _STARTS)

    def hosts(self, engine_id: str) -> Mapping[str, str]:
        """Return the host of the driver; those of its workers are the driver's business."""
        driver = text((self._job(engine_id) or {}).get("driver_node_id"))
        names = [text(at(node, "hostname")) for node in self._nodes() if driver and at(node, "raylet", "nodeId") == driver]
        return {name: name for name in names if name}

    def output(self, engine_id: str, log: Path) -> str:  # noqa: ARG002
        """Return the command that shows the driver's output."""
        return f"ray job logs --address {self._options.address} {engine_id}"

    def cancel(self, engine_id: str) -> None:
        """Stop the job; one that waits is stopped when it starts."""
        answer = self._ask(f"/api/jobs/{quote(engine_id, safe='')}/stop", {})
        if answer.status not in {200, 404}:
            raise TachoscopeError(f"Ray refused to stop job {engine_id}: {_last_line(answer)}")

    def _without(self, request: AttemptRequest) -> dict[str, str]:
        alive = [node for node in self._nodes() if at(node, "raylet", "state") == "ALIVE"]
        excluded = [text(at(node, "raylet", "nodeId")) for node in alive if at(node, "hostname") in request.excluded_hosts]
        if len(excluded) == len(alive):
            raise TooFewHostsError(f"no node is left without {', '.join(request.excluded_hosts)}")
        return {"ray.io/node-id": f"!in({','.join(excluded)})"} if excluded else {}

    def _lost(self, job: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the host of the driver if it is down."""
        driver = job.get("driver_node_id")
        node = next((one for one in self._nodes() if at(one, "raylet", "nodeId") == driver), None)
        return (text(at(node, "hostname")),) if node is not None and at(node, "raylet", "state") == "DEAD" else ()

    def _nodes(self) -> list[Any]:
        return items(_document(self._ask("/nodes?view=summary")), "data", "summary")

    def _job(self, submission_id: str) -> dict[str, Any] | None:
        answer = self._ask(f"/api/jobs/{quote(submission_id, safe='')}")
        return None if answer.status == 404 and b"does not exist" in answer.content else _document(answer)

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> HttpResponse:
        headers = {"Accept": "application/json"}
        if self._options.token_file:
            headers["Authorization"] = f"Bearer {_token(self._options.token_file)}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._options.address}{path}"
        try:
            answer = request(url, seconds=TIMEOUT_SECONDS, most_bytes=MOST_BYTES, body=data, headers=headers)
        except HttpError as error:
            raise TachoscopeError(f"Ray at {self._options.address} does not answer: {error}", fix="ray status") from None
        if answer.status in {401, 403}:
            raise TachoscopeError(f"Ray at {self._options.address} refuses the token: {answer.status}", fix="check ray.token_file")
        return answer


def _submission(request: AttemptRequest) -> dict[str, Any]:
    job = request.job
    found: dict[str, Any] = {
        "entrypoint": shlex.join(request.command),
        "submission_id": request.label,
        "metadata": {"tachoscope_job": job.name, "tachoscope_attempt": str(request.number)},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}},
    }
    found |= {"entrypoint_num_cpus": job.cpus_per_node} if job.cpus_per_node else {}
    found |= {"entrypoint_num_gpus": job.gpus_per_node} if job.gpus_per_node else {}
    found |= {"entrypoint_memory": _bytes(job.memory_per_node)} if job.memory_per_node else {}
    return found


def _bytes(amount: str) -> int:
    return int(amount.rstrip("KMGT")) * _UNITS.get(amount[-1], 1 << 20)


def _document(answer: HttpResponse) -> dict[str, Any]:
    try:
        found = json.loads(answer.raise_for_status().content)
    except (HttpError, ValueError) as error:
        raise TachoscopeError(f"Ray does not answer as its REST API: {error}", fix="ray.address is that of the dashboard") from None
    if not isinstance(found, dict):
        raise TachoscopeError("Ray does not answer as its REST API", fix="ray.address is that of the dashboard")
    return found


def _token(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise TachoscopeError(f"the token of the Ray cluster cannot be read from {path}: {error}") from None


def _last_line(answer: HttpResponse) -> str:
    """Return the end of a traceback, as Ray answers."""
    lines = answer.content.decode(errors="replace").strip().splitlines()
    return f"{answer.status} {next((line for line in reversed(lines) if len(line) > 1), '')[:300]}"
