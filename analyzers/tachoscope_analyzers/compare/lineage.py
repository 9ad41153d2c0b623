"""What two runs were made of differently: code, image, data, each hyper-parameter, each environment variable."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping

from tachoscope_core.report.comparison import LineageDifference

_OF_ONE_RUN_ONLY = {
    *("launch_command", "slurm_job", "kubernetes_job", "torchelastic_run", "parents", "topology"),
    *("mlflow_run", "mlflow_tracking_uri", "wandb_run", "wandb_directory"),
}
"""They differ between two runs of the same thing. The process's command tells what the launcher's would."""
_PLACES = {"MASTER_ADDR", "MASTER_PORT"}


def differences(now: Mapping[str, str], before: Mapping[str, str]) -> list[LineageDifference]:
    """Return what differs, hyper-parameters and environment variables one by one; none where nothing is known of one of the two."""
    if not now or not before:
        return []
    sides = [_flat(before), _flat(now)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    return [
        LineageDifference(name=name, baseline=sides[0].get(name, ""), now=sides[1].get(name, ""))
        for name in names
        if sides[0].get(name, "") != sides[1].get(name, "")
    ]


def _flat(lineage: Mapping[str, str]) -> dict[str, str]:
    """Return the values by name; where hyper-parameters are known one by one, their hash says no more."""
    found: dict[str, str] = {}
    for name, value in lineage.items():
        if name == "hyperparameters":
            found |= _hyperparameters(value)
        elif name == "environment":
            found |= {f"environment {word}": set_to for word, set_to in _variables(value) if word not in _PLACES}
        elif name not in _OF_ONE_RUN_ONLY and not (name == "hyperparameters_hash" and "hyperparameters" in lineage):
            found[name] = value
    return found


def _hyperparameters(text: str) -> dict[str, str]:
    """Return each one as JSON; the whole where it was cut."""
    with contextlib.suppress(ValueError):
        values = json.loads(text)
        if isinstance(values, dict):
            return {f"hyper-parameter {name}": json.dumps(value) for name, value in values.items()}
    return {"hyperparameters": text}


def _variables(text: str) -> list[tuple[str, str]]:
    try:
        words = shlex.split(text)
    except ValueError:  # cut within quotes
        words = text.split()
    pairs = (word.partition("=") for word in words)
    return [(name, value) for name, sign, value in pairs if sign]
