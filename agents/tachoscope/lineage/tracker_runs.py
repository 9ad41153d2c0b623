"""Which runs of experiment trackers this process has open: asks modules that the job imported, never a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType

from tachoscope_core.redaction import redact


def active() -> dict[str, str]:
    """Return the open or last run of each tracker: `mlflow_run`, `wandb_run` and their locations."""
    found: dict[str, str] = {}
    for name, ask in _TRACKERS.items():
        module = sys.modules.get(name)
        if module is not None:
            try:
                found |= ask(module)
            except Exception:  # noqa: S112  # another version: then nothing is known of its run
                continue
    return found


def runs_in(lineage: Mapping[str, str]) -> dict[str, str]:
    """Return what of a lineage is about runs of trackers."""
    return {name: value for name, value in lineage.items() if name.startswith(tuple(f"{tracker}_" for tracker in _TRACKERS))}


def _mlflow(mlflow: ModuleType) -> dict[str, str]:
    run = mlflow.active_run()
    # `last_active_run` would ask the server.
    last = getattr(sys.modules.get("mlflow.tracking.fluent"), "_last_active_run_id", None)
    run_id = run.info.run_id if run is not None else last.get() if last is not None else None
    if not run_id:
        return {}
    uri = str(mlflow.get_tracking_uri())
    if uri and "://" not in uri and not uri.startswith("databricks"):
        uri = os.path.abspath(uri.removeprefix("file:"))
    return {"mlflow_run": str(run_id), "mlflow_tracking_uri": redact(uri)}


def _wandb(wandb: ModuleType) -> dict[str, str]:
    run = wandb.run
    if run is None or run.disabled:
        return {}
    return {
        "wandb_run": str(run.id),
        "wandb_project": str(run.project or ""),
        "wandb_entity": str(run.entity or ""),
        "wandb_mode": "offline" if run.offline else "online",
        "wandb_directory": os.path.abspath(run.settings.root_dir),
    }


_TRACKERS: dict[str, Callable[[ModuleType], dict[str, str]]] = {"mlflow": _mlflow, "wandb": _wandb}
