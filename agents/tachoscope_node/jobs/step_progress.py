"""Which steps of the whole job are done: what a node can know of the steps that are done again after a restart.

Steps are counted again by each process. The number of a step within the job is that of the checkpoint that its attempt began from,
plus its number within the process.
"""

from __future__ import annotations

import msgspec

MAX_REFERENCES = 64
MAX_ATTEMPTS = 64


class Progress(msgspec.Struct):
    """Of one job.

    Attributes:
        saved: step of the job by reference of the checkpoint, the newest last.
        bases: by attempt, the step of the job that it began from; None: it began from a checkpoint of which nothing is known.
    """

    saved: dict[str, int] = {}
    bases: dict[int, int | None] = {}

    def save(self, attempt: int, step: int, reference: str) -> None:
        """Note a checkpoint, saved after so many steps of a process."""
        if not reference:
            return
        base = self.bases.get(attempt, 0)
        self.saved.pop(reference, None)
        if base is not None:
            self.saved[reference] = base + step
        while len(self.saved) > MAX_REFERENCES:
            del self.saved[next(iter(self.saved))]

    def restore(self, attempt: int, step: int, reference: str, *, first: bool) -> None:
        """Note what an attempt began from. It may read several, such as weights from before the job: the last step counts.

        Args:
            step: of the job, where the job says it; negative: it does not.
            first: no step of the job was seen before: then what it began from is as good a beginning of the count as any.
        """
        at = step if step >= 0 else self.saved.get(reference)
        if at is None and first:
            at = self.saved[reference] = 0
        before = self.bases.get(attempt)
        self.bases[attempt] = before if at is None else max(at, before or 0)
        while len(self.bases) > MAX_ATTEMPTS:
            del self.bases[min(self.bases)]

    def base(self, attempt: int, *, first: bool, whole: bool) -> int | None:
        """Return the step of the job that an attempt began from, None where a node cannot know it.

        Args:
            first: no earlier attempt was seen: then it does not matter where the count begins.
            whole: all ranks are on this node; a rank elsewhere may have read the checkpoint for all.
        """
        if attempt in self.bases:
            return self.bases[attempt]
        return 0 if first or whole else None
