"""The one probe of this process, and how it starts."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from types import ModuleType

from tachoscope import guard
from tachoscope.failures import hooks, own_report  # noqa: F401  # the latter is loaded before something fails
from tachoscope.patches import frameworks as adapters
from tachoscope.patches import shard_readers as shard_adapters
from tachoscope.process import identity
from tachoscope.process.import_hook import after_import
from tachoscope.spool import process_outbox
from tachoscope.training.probe import Probe
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import spool

PROBE = Probe()
process_outbox.is_watched_by(lambda: (PROBE.identity, PROBE.directory) if PROBE.on else None)
_patched: list[str] = []


def start(job: str | None = None, *, torch: ModuleType | None = None) -> bool:
    """Start the probe if it is off; False, with one line on stderr, where it cannot.

    Args:
        job: the job's name; default: what the environment says.
        torch: the module, when called at the end of its import; else it is wrapped once it is imported.
    """
    if PROBE.on:
        return True
    try:
        who = identity.resolve(os.environ, job=job)
    except TachoscopeError as error:
        guard.print_line(f"not watching: {error}")
        return False
    run_directory = os.environ.get(identity.RUN_DIR)
    hooks.install(run_directory or "")
    PROBE.open(who, Path(run_directory) if run_directory else spool.default_root() / f"watch-{uuid.uuid4()}")
    if not _patched:
        _patched.append("torch")
        if torch is not None:
            _after_torch(torch)
        else:
            after_import("torch", _after_torch)
        adapters.install(PROBE)
        shard_adapters.install()
    return True


def _after_torch(torch: ModuleType) -> None:
    from tachoscope.patches import torch_loop as patches

    patches.install(PROBE, torch)
