"""Shapes of numbers that the analyzers pass to each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
"""Seconds, shape (steps, ranks) or (steps,)."""
