"""A clock in nanoseconds that stands still between calls."""

from __future__ import annotations

SECOND = 1_000_000_000


class FakeClock:
    def __init__(self) -> None:
        self.now = 5 * SECOND

    def __call__(self) -> int:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
