"""The whole-job API: JSON documents of what is watched, and the OpenAPI document that describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tachoscope_core.report import SEVERITY_ORDER, Finding
from tachoscope_watch.view import JobView


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the list of all.

    Attributes:
        workers: of the newest attempt. heartbeat: Unix seconds of the newest record of any. step: the last that any finished.
        worst: its gravest finding. reason: why there is no report.
    """

    job: str
    state: str
    looked: float
    hosts: list[str]
    workers: int
    heartbeat: float
    step: int
    goodput: float | None
    worst: Finding | None
    reason: str


def line(view: JobView) -> JobLine:
    """Return a job as it stands in the list."""
    findings = view.report.findings if view.report is not None else []
    return JobLine(
        job=view.job,
        state=view.state,
        looked=view.looked,
        hosts=sorted({worker.host for worker in view.workers}),
        workers=len(view.workers),
        heartbeat=max((worker.heartbeat for worker in view.workers), default=0.0),
        step=max((worker.step for worker in view.workers), default=0),
        goodput=view.report.goodput if view.report is not None else None,
        worst=min(findings, key=lambda one: (SEVERITY_ORDER[one.severity], -one.share), default=None),
        reason=view.reason,
    )


def jobs(views: Sequence[JobView]) -> bytes:
    """Return the document of `/v1/jobs`."""
    return msgspec.json.encode({"jobs": [line(view) for view in views]})


def openapi(version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document; its schemas are made of the types that are served."""
    schemas = msgspec.json.schema_components([JobLine, JobView], ref_template="#/components/schemas/{name}")
    (line_schema, view_schema), components = schemas
    listed = {"type": "object", "required": ["jobs"], "properties": {"jobs": {"type": "array", "items": line_schema}}}
    name = {"name": "job", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tachoscope watch", "version": version, "description": "Live jobs of a store, over all their nodes."},
        "paths": {
            "/v1/jobs": {"get": {"summary": "All live jobs, a line each", "responses": {"200": _json("The jobs", listed)}}},
            "/v1/jobs/{job}": {
                "get": {
                    "summary": "One job: state, attempts, workers, checkpoints, and its report with findings and lineage",
                    "parameters": [name],
                    "responses": {"200": _json("The job", view_schema), "404": {"description": "No live job is called so"}},
                }
            },
        },
        "components": {"schemas": components},
    }


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
