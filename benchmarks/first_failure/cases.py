"""The planted failures, with the truth of each: which rank is at fault, and at which line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("rank.py")
_MARK = "# fault: "


@dataclass(frozen=True, slots=True)
class Case:
    """A planted failure.

    Attributes:
        fault: its name in `rank.py`. ranks: of the job. faulty: the ranks that may be named; empty: the last.
        cause: as a report names it.
    """

    fault: str
    ranks: int
    cause: str
    faulty: tuple[int, ...] = ()

    @property
    def truth(self) -> tuple[int, ...]:
        """The ranks that may be named."""
        return self.faulty or (self.ranks - 1,)


CASES = (
    Case("import_error", 2, "exception"),
    Case("import_error_everywhere", 2, "exception", (0, 1)),
    Case("full_disk", 2, "exception", (0,)),
    Case("corrupt_checkpoint", 2, "exception"),
    Case("port_in_use", 2, "exception", (0,)),
    Case("missing_data", 4, "exception"),
    Case("sleeps", 2, "hang"),
    Case("deadlocked_lock", 3, "hang"),
    Case("killed_from_outside", 2, "killed"),
    Case("segmentation_fault", 2, "killed"),
    Case("abort", 2, "killed"),
    Case("allocation_fails", 2, "out_of_memory"),
    Case("memory_error", 2, "out_of_memory"),
    Case("not_finite", 2, "exception"),
    Case("exit_0", 2, "exited"),
    Case("too_few_batches", 2, "exited"),
    Case("exit_at_once", 2, "exited"),
    Case("caught_then_exit", 2, "exception"),
    Case("loader_worker_raises", 2, "exception"),
    Case("loader_worker_killed", 2, "killed"),
    Case("prefetch_thread_dies", 2, "exception"),
    Case("shape_mismatch", 2, "exception"),
    Case("key_error", 3, "exception"),
    Case("wrapped_error", 2, "exception"),
    Case("slow_clean_up", 3, "exception"),
    Case("data_server_refuses", 2, "exception"),
    Case("command_fails", 2, "exception"),
)
WITHOUT_LINE = frozenset({"killed_from_outside", "too_few_batches", "loader_worker_killed"})
"""Nothing of the rank's own code is at fault: no line may be named."""


def line_of(fault: str) -> int | None:
    """Return the line at which a fault strikes; None: at none.

    Raises:
        LookupError: the script has no such line.
    """
    if fault in WITHOUT_LINE:
        return None
    for number, line in enumerate(SCRIPT.read_text().splitlines(), 1):
        if line.rstrip().endswith(f"{_MARK}{fault}"):
            return number
    raise LookupError(f"{SCRIPT}: no line ends with {_MARK}{fault}")
