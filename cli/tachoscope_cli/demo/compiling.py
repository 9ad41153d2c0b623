"""A part of the demo's loss that torch.compile compiles again for each new length, as for batches that are not padded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

OPERATIONS = 24
"""So many take about as long to compile as a step takes to compute."""
_SHORTEST, _MOST_LENGTHS = 16, 1 << 16


class LengthPenalty:
    """A compiled sum over a batch's lengths. `only_while`: the length changes only while this file exists; None: in each step."""

    def __init__(self, only_while: Path | None) -> None:
        config: Any = torch._dynamo.config
        config.recompile_limit = config.accumulated_recompile_limit = _MOST_LENGTHS
        self._only_while, self._length = only_while, _SHORTEST
        self._call: Callable[[torch.Tensor], torch.Tensor] = torch.compile(_penalty, backend="aot_eager", dynamic=False)

    def __call__(self) -> torch.Tensor:
        """Return the penalty of the next batch."""
        if self._only_while is None or self._only_while.exists():
            self._length += 1
        return self._call(torch.ones(self._length))


def _penalty(lengths: torch.Tensor) -> torch.Tensor:
    for _ in range(OPERATIONS):
        lengths = torch.sin(lengths) + 1.0
    return 0.0 * lengths.sum()
