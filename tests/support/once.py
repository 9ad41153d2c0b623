"""What one worker of pytest makes for all of them: each has its own module and session fixtures, and would make it again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder `name`, which the first worker that asks for it has filled; the others wait for it, and only read."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    done = folder.with_suffix(".done")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():  # where the first failed, the next one fails likewise
            folder.mkdir(exist_ok=True)
            make(folder)
            done.touch()
    return folder
