"""A thread's stack as code and lines, without its frames: these would keep the job's tensors alive."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FrameType

Chain = Sequence[tuple[CodeType, int]]
"""Code and line of each frame, the innermost first."""

MOST_FRAMES = 48


def chain_of(frame: FrameType | None) -> Chain:
    """Return the innermost frames of a stack."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < MOST_FRAMES:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found
