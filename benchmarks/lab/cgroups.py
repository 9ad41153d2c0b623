"""Control groups (version 1) in which a rank gets less than it needs.

They are removed when the run is over, and those of a lab that was killed when the next one begins.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "tachoscope-lab-"


def available(controller: str, file: str) -> str:
    """Return why a controller cannot be used, empty if it can."""
    folder = ROOT / controller / f"{_PREFIX}{os.getpid()}-try"
    try:
        folder.mkdir()
    except OSError as error:
        return f"no group can be made in {ROOT / controller}: {error.strerror}"
    try:
        return "" if (folder / file).exists() else f"{ROOT / controller} has no {file}"
    finally:
        folder.rmdir()


def make(controller: str, name: str, settings: dict[str, str]) -> Path:
    """Make a group with these settings for the calling rank; the lab, its parent, removes it. OSError where the kernel refuses."""
    folder = ROOT / controller / f"{_PREFIX}{os.getppid()}-{name}"
    folder.mkdir()
    for file, value in settings.items():
        (folder / file).write_text(value)
    return folder


def join(folder: Path) -> None:
    """Move this process, and what it forks from now on, into a group."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def remove_all(*, of_others: bool = False) -> None:
    """Remove the groups of this process; with `of_others` those too whose process is gone. They are to be empty."""
    for folder in ROOT.glob(f"*/{_PREFIX}*"):
        pid = int(folder.name.removeprefix(_PREFIX).split("-")[0])
        if pid == os.getpid() or (of_others and not Path(f"/proc/{pid}").exists()):
            with contextlib.suppress(OSError):
                folder.rmdir()
