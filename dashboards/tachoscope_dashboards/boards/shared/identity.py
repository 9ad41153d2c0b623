"""What tells a job or service from another of its name, on boards: labels to group and join by, legends, columns, links.

Legends leave out the team: names are unique within a namespace wherever that is how teams are told apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from tachoscope_core.metrics.metric import IDENTITY, NAMESPACE
from tachoscope_dashboards.parts.panels import Column

PLACE = ", ".join(IDENTITY)
JOB = f"{PLACE}, training_job"
SERVICE = f"{PLACE}, service"
MODEL = f"{SERVICE}, model"
"""Labels of a job, a service, and a model of a service, for `by (...)` and `on (...)`."""

_WHERE = f"{{{{{NAMESPACE}}}}} {{{{cluster}}}}"
JOB_LEGEND = f"{{{{training_job}}}} {_WHERE}"
SERVICE_LEGEND = f"{{{{service}}}} {_WHERE}"
MODEL_LEGEND = f"{{{{service}}}} {{{{model}}}} {_WHERE}"
"""Name first: a legend is cut at its end. Labels that a series lacks are blanks."""

COLUMNS = (Column("cluster", "Cluster"), Column(NAMESPACE, "Namespace"), Column("team", "Team"))
"""Rows of a table are joined by its columns, so that each label is one. Grafana leaves out a column that no series has."""


def job_of_row(kept: Mapping[str, str], job: str = "${__value.raw}") -> dict[str, str]:
    """Return what a link from a row to a board of one job sets; empty where the row has no such label.

    Args:
        kept: what is taken along from the board. job: by default the cell itself.
    """
    place = {"job_cluster": "Cluster", "job_namespace": "Namespace", "job_team": "Team"}
    return {**kept, "training_job": job, **{name: f"${{__data.fields.{column}}}" for name, column in place.items()}}


def service_of_row(kept: Mapping[str, str]) -> dict[str, str]:
    """Return what a link from the cell of a service to its board sets."""
    place = {"cluster": "${__data.fields.Cluster}", NAMESPACE: "${__data.fields.Namespace}"}
    return {**kept, **place, "service": "${__value.raw}"}
