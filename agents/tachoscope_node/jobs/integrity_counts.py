"""Counts what the probe's checks of the numbers found, as far as one node can know: each checked step once, not once a rank."""

from __future__ import annotations

import msgspec

from tachoscope_core.metrics.training import INTEGRITY_KINDS
from tachoscope_core.records.records import IntegrityEvent

MAX_STEPS = 64
"""Checked steps of which is remembered what was found: of ranks whose files are read one after the other."""
_MAX_CHECKSUM = 64
_DIFFERS = "checksum"


class CheckedStep(msgspec.Struct):
    """A step that was checked: checksums by rank, of those whose numbers are finite, and the kinds that were found."""

    sums: dict[int, str] = {}
    found: list[str] = []


class Integrity(msgspec.Struct):
    """Of one job that is checked.

    Attributes:
        events: by kind. alike: replicas of the attempt were seen to agree once: nobody knows before that they should.
        steps: the last ones that were checked.
    """

    events: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(INTEGRITY_KINDS, 0))
    attempt: int = -1
    alike: bool = False
    steps: dict[int, CheckedStep] = {}

    def add_event(self, event: IntegrityEvent) -> None:
        """Take what a rank's check found, or that it found nothing."""
        if event.attempt < self.attempt:
            return
        if event.attempt > self.attempt:
            self.attempt, self.alike, self.steps = event.attempt, False, {}
        checked = self.steps.setdefault(event.step, CheckedStep())
        if len(self.steps) > MAX_STEPS:
            del self.steps[min(self.steps)]
        for kind in event.not_finite:
            if kind != _DIFFERS and kind in self.events:
                self._count(checked, kind)
        if event.checksum and not event.not_finite:
            checked.sums[event.rank] = event.checksum[:_MAX_CHECKSUM]
        sums = [checked.sums[rank] for rank in event.replicas if rank in checked.sums]
        if len(sums) > 1 and len(set(sums)) > 1 and self.alike:
            self._count(checked, _DIFFERS)
        elif len(sums) > 1 and len(set(sums)) == 1:
            self.alike = True

    def _count(self, checked: CheckedStep, kind: str) -> None:
        if kind not in checked.found:
            checked.found.append(kind)
            self.events[kind] += 1
