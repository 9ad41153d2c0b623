"""Where readers keep what they made of what they read, so that the second time is quick. Whatever is there may be removed."""

from __future__ import annotations

import os
from pathlib import Path


def folder(name: str) -> Path:
    """Return the folder of one kind of cache, which need not be there: below `$TACHOSCOPE_CACHE`, else `~/.cache/tachoscope`."""
    root = os.environ.get("TACHOSCOPE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tachoscope"
    return Path(root) / name
