"""What a run was made of, in a few lines for the terminal; the page and the JSON have the whole."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LONG = 120
_DIGEST = re.compile(r"\b(git:|sha256:)([0-9a-f]{12})[0-9a-f]{8,}")
_LINES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("code_reference", "code"), ("image", "image"), ("data_snapshot", "data")),
    (("launch_command", "command"), ("command", "command")),
    (("hyperparameters_hash", "hyper-parameters"), ("hyperparameters", ""), ("parents", "began from")),
    (("slurm_job", "Slurm job"), ("kubernetes_job", "Kubernetes job"), ("mlflow_run", "MLflow run"), ("mlflow_tracking_uri", "at")),
    (("wandb_run", "Weights & Biases run"), ("wandb_project", "of project"), ("wandb_mode", "")),
)
"""Names of values and the words before them, by line."""
_ON_THE_PAGE_ONLY = {
    "script_sha256",
    "code_changes",
    "wandb_directory",
    "wandb_entity",
    "python_version",
    "torch_version",
    "torchelastic_run",
    "environment",
}
"""Needed to do a run again, not to read its report."""


def lines(lineage: Mapping[str, str]) -> list[str]:
    """Return the lines; empty without a lineage. Of two commands the one that was typed tells what it started, too."""
    values = {name: _short(value) for name, value in lineage.items() if value}
    if "launch_command" in values:
        values.pop("command", None)
    found = [[f"{word} {values[name]}".strip() for name, word in line if name in values] for line in _LINES]
    named = {name for line in _LINES for name, _ in line} | _ON_THE_PAGE_ONLY
    found.append([f"{name} {value}" for name, value in values.items() if name not in named])
    shown = [", ".join(line) for line in found if line]
    return [f"{'made of:' if index == 0 else '        '} {line}" for index, line in enumerate(shown)]


def _short(value: str) -> str:
    value = _DIGEST.sub(r"\1\2", value)
    return value if len(value) <= _LONG else f"{value[:_LONG]}..."
