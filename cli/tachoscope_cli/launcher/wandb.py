"""Logs results to a run of Weights & Biases, by resuming it: https://docs.wandb.ai/models/runs/resuming.

A run that was offline is resumed offline: a folder of its own beside the run's, and `wandb sync` joins the two by the run's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import wandb

    from tachoscope_cli.launcher.tracked_results import Results

_INIT_SECONDS = 20.0
"""By default it tries for 90 s, while a person waits for the prompt."""
_RETRIES = 5
"""Up to version 0.28 its process goes on for minutes after `init` gave up, and its end is waited for."""


def log(runs: Mapping[str, str], results: Results) -> str:
    """Put metrics and tags into the summary of the run `wandb_run`, reports into an artifact; return where. wandb's errors pass."""
    import wandb

    settings = wandb.Settings(
        silent=True,
        console="off",
        init_timeout=_INIT_SECONDS,
        x_graphql_retry_max=_RETRIES,
        x_file_stream_retry_max=_RETRIES,
        x_file_transfer_retry_max=_RETRIES,
        x_graphql_retry_wait_max_seconds=2.0,
        x_file_stream_retry_wait_max_seconds=2.0,
        x_file_transfer_retry_wait_max_seconds=2.0,
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    try:
        return _resume_and_log(runs, results, settings)
    finally:
        wandb.teardown()


def _resume_and_log(runs: Mapping[str, str], results: Results, settings: wandb.Settings) -> str:
    import wandb

    offline = runs.get("wandb_mode") == "offline"
    run = wandb.init(
        id=runs["wandb_run"],
        project=runs.get("wandb_project") or None,
        entity=runs.get("wandb_entity") or None,
        dir=runs.get("wandb_directory") or None,
        resume="allow",
        mode="offline" if offline else "online",
        settings=settings,
    )
    try:
        run.summary.update({**results.metrics, **results.tags})
        artifact = wandb.Artifact(f"tachoscope-{run.id}", type="report")
        artifact.add_dir(str(results.folder))
        run.log_artifact(artifact)
        return str(run.settings.sync_dir) if offline else str(run.url)
    finally:
        run.finish()
