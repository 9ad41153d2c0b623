"""The whole-job API: JSON documents of what is watched, and the OpenAPI document that describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tachoscope_core.jobs.submission import MOST_KEY_CHARACTERS
from tachoscope_core.jobs.training_job_view import TrainingJobView
from tachoscope_core.report.failures import Failure
from tachoscope_core.report.report import Finding, gravest
from tachoscope_watch.profile_view import Profile
from tachoscope_watch.profiles import MOST_STEPS
from tachoscope_watch.training_jobs import MOST_BODY_BYTES, PATH, TrainingJobDetail
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
    shown = [JobLine, JobView, Profile, TrainingJobView, TrainingJobDetail]
    schemas = msgspec.json.schema_components(shown, ref_template="#/components/schemas/{name}")
    (line_schema, view_schema, profile_schema, *training_schemas), components = schemas
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
            **_training_jobs(*training_schemas),
        },
        "components": {"schemas": components},
    }


def _training_jobs(line: dict[str, Any], detail: dict[str, Any]) -> dict[str, Any]:
    listed = {"type": "object", "required": ["training_jobs"], "properties": {"training_jobs": {"type": "array", "items": line}}}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    conflict = {"409": _json("The name is another job's, or the state of the job excludes it", _ERROR)}
    store = {"503": _json("The store cannot be read or written", _ERROR)} | _CLOSED
    unknown = {"404": _json("No training job is called so", _ERROR)} | store
    submitted = {
        "summary": "Submit a training job; a supervisor starts it. The same key again is the same job",
        "parameters": [_KEY, _AGAIN],
        "requestBody": {
            "required": True,
            "description": f"The specification as `tachoscope submit` reads it, at most {MOST_BODY_BYTES >> 10} KiB.",
            "content": {"application/yaml": {"schema": {"type": "object"}}, "application/json": {"schema": {"type": "object"}}},
        },
        "responses": {
            "201": _json("It is in the store", line),
            "403": _NOT_ACCEPTED,
            "413": {"description": "The specification is too long", "content": _TEXT},
            "422": _json("The specification or the query is not valid; the line is named", _ERROR),
        }
        | conflict
        | store,
    }
    cancelled = {"202": _json("Its supervisor ends it", line), "403": _NOT_ACCEPTED} | conflict | unknown
    return {
        PATH: {
            "get": {
                "summary": "All training jobs that were submitted and the client may see",
                "responses": {"200": _json("The jobs", listed)} | store,
            },
            "post": submitted,
        },
        f"{PATH}/{{name}}": {
            "get": {
                "summary": "One training job: state, attempts, workers, checkpoints, findings and lineage",
                "parameters": [name],
                "responses": {"200": _json("The job", detail), "403": _json("The client lacks the role reader", _ERROR)} | unknown,
            }
        },
        f"{PATH}/{{name}}/cancel": {
            "post": {
                "summary": "Ask for the end of a training job; the request has no body",
                "parameters": [name],
                "responses": cancelled,
            }
        },
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


_NOT_ACCEPTED: dict[str, Any] = {
    "description": "The client lacks the role that the error names, or the watch runs without --accept-jobs. Requests from web "
    "pages get a plain text.",
    "content": {"application/json": {"schema": _ERROR}} | _TEXT,
}
_KEY = {
    "name": "key",
    "in": "query",
    "description": "Made from the specification if it is not given.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MOST_KEY_CHARACTERS},
}
_AGAIN = {
    "name": "again",
    "in": "query",
    "description": "Let a job of this name that failed or was cancelled go on.",
    "schema": {"type": "boolean", "default": False},
}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
