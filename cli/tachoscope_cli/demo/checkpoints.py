"""The checkpoints of the demo's training, as a training of its own would save them; imported by a script that trains."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

SAVED_BYTES, KEPT_CHECKPOINTS = 8 << 20, 8


class Checkpoints:
    """What training needs to go on, saved every so many seconds, whole or not at all. One that fails is said; training goes on."""

    def __init__(self, folder: Path, model: Any, every_seconds: float | None) -> None:
        self._folder, self._model, self._every, self._last = folder, model, every_seconds, time.monotonic()

    def step_ended(self, step: int) -> None:
        """Save if it is time; called after each step."""
        if self._every is None or time.monotonic() - self._last < self._every:
            return
        self._last = time.monotonic()
        path = self._folder / f"checkpoint-{step:07d}.pt"
        new = path.with_suffix(".tmp")
        try:
            with new.open("wb") as file:
                torch.save({"model": self._model.state_dict(), "padding": torch.zeros(SAVED_BYTES // 4)}, file)
            new.replace(path)
        except (OSError, RuntimeError) as error:  # torch's writer raises its own, in place of what the file system says
            new.unlink(missing_ok=True)
            sys.stderr.write(f"step {step}: could not save {path}: {error.__context__ or error}\n")
        for old in sorted(self._folder.glob("checkpoint-*.pt"))[:-KEPT_CHECKPOINTS]:
            old.unlink()
