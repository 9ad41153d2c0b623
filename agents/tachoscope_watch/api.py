"""The whole-job API: JSON documents of what is watched, and the OpenAPI document that describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tachoscope_core.report.failures import Failure
from tachoscope_core.report.report import Finding, gravest
from tachoscope_watch.profile_view import Profile
from tachoscope_watch.profiles import MOST_STEPS
from tachoscope_watch.view import JobView


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the list of all.

    Attributes:
        workers: of the newest attempt. heartbeat: Unix seconds of the newest record of any. step: the last that any finished.
        worst: the most severe finding. reason: why there is no report. namespace, failure, judged, put_off: as in `JobView`.
    """

    job: str
    namespace: str
    state: str
    looked: float
    hosts: list[str]
    workers: int
    heartbeat: float
    step: int
    goodput: float | None
    worst: Finding | None
    failure: Failure | None
    judged: float
    put_off: int
    reason: str


def line(view: JobView) -> JobLine:
    """Return a job as it stands in the list."""
    findings = view.report.findings if view.report is not None else [view.hang] if view.hang is not None else []
    return JobLine(
        job=view.job,
        namespace=view.namespace,
        state=view.state,
        looked=view.looked,
        hosts=sorted({worker.host for worker in view.workers}),
        workers=len(view.workers),
        heartbeat=max((worker.heartbeat for worker in view.workers), default=0.0),
        step=max((worker.step for worker in view.workers), default=0),
        goodput=view.report.goodput if view.report is not None else None,
        worst=gravest(findings),
        failure=view.failure,
        judged=view.judged,
        put_off=view.put_off,
        reason=view.reason,
    )


def jobs(views: Sequence[JobView]) -> bytes:
    """Return the document of `/v1/jobs`, with a line for each job."""
    return msgspec.json.encode({"jobs": [line(view) for view in views]})


def openapi(version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document; its schemas are made of the types that are served."""
    schemas = msgspec.json.schema_components([JobLine, JobView, Profile], ref_template="#/components/schemas/{name}")
    (line_schema, view_schema, profile_schema), components = schemas
    listed = {"type": "object", "required": ["jobs"], "properties": {"jobs": {"type": "array", "items": line_schema}}}
    several = {"profiles": {"type": "array", "items": profile_schema}}
    profiles = {"type": "object", "required": ["profiles"], "properties": several}
    unknown = {"404": _json("No live job is called so, nor was a profile of it asked for here", _ERROR)} | _CLOSED
    name = {"name": "job", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tachoscope watch", "version": version, "description": "Live jobs of a store, over all their nodes."},
        "paths": {
            "/v1/jobs": {
                "get": {"summary": "All live jobs, a line each", "responses": {"200": _json("The jobs", listed)} | _CLOSED}
            },
            "/v1/jobs/{job}": {
                "get": {
                    "summary": "One job: state, attempts, workers, checkpoints, and its report with findings and lineage",
                    "parameters": [name],
                    "responses": {"200": _json("The job", view_schema)} | unknown,
                }
            },
            "/v1/jobs/{job}/profile": {
                "get": {
                    "summary": "All profiles of a job that were requested in the last hour, the newest first",
                    "parameters": [name],
                    "responses": {"200": _json("The profiles, and how far each is", profiles)} | unknown,
                },
                "post": {
                    "summary": "Record all ranks of a job at one time; the request has no body",
                    "parameters": [name, _STEPS],
                    "responses": {
                        "202": _json("It is asked for", profile_schema),
                        "403": _REFUSED,
                        "409": _json("A profile of the job is under way", _ERROR),
                        "413": {"description": "The request has a body", "content": _TEXT},
                        "422": _json("No such number of steps", _ERROR),
                    }
                    | unknown,
                },
            },
        },
        "components": {"schemas": components},
    }


_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_STEPS = {
    "name": "steps",
    "in": "query",
    "description": "Whole steps that each trace should hold.",
    "schema": {"type": "integer", "minimum": 1, "maximum": MOST_STEPS, "default": 5},
}


_CLOSED = {"401": {"description": "A password or token is asked for"}}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_REFUSED: dict[str, Any] = {
    "description": "Nobody is known by password, token or certificate here; or, as plain text, a page in a browser asks",
    "content": {"application/json": {"schema": _ERROR}} | _TEXT,
}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
