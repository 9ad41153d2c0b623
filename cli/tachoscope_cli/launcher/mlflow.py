"""Logs results to a run of MLflow, through its client: https://mlflow.org/docs/latest/api_reference/python_api/mlflow.client.html."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import HIDDEN, redact

if TYPE_CHECKING:
    from tachoscope_cli.launcher.tracked_results import Results

FOLDER = "tachoscope"
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""By default it tries for minutes, while a person waits for the prompt."""


def log(runs: Mapping[str, str], results: Results) -> str:
    """Log metrics, tags and reports to the run `mlflow_run` of `mlflow_tracking_uri`; return that URI. The client's errors pass."""
    for name, value in _IMPATIENT.items():
        os.environ.setdefault(name, value)
    from mlflow.entities import Metric, RunTag
    from mlflow.tracking import MlflowClient
    from mlflow.utils.time import get_current_time_millis

    uri = _usable(runs.get("mlflow_tracking_uri", ""), os.environ.get("MLFLOW_TRACKING_URI", ""))
    client, run, now = MlflowClient(tracking_uri=uri), runs["mlflow_run"], get_current_time_millis()
    client.log_batch(
        run,
        metrics=[Metric(name, value, now, 0) for name, value in results.metrics.items()],
        tags=[RunTag(name, value) for name, value in results.tags.items()],
    )
    client.log_artifacts(run, str(results.folder), FOLDER)
    return uri


def _usable(recorded: str, own: str) -> str:
    """Return the tracking URI with credentials from this process's environment, since they are not recorded."""
    if HIDDEN not in recorded:
        return recorded
    if redact(own) == recorded:
        return own
    raise TachoscopeError("its tracking URI contains credentials, which are not recorded", fix="set MLFLOW_TRACKING_URI")
