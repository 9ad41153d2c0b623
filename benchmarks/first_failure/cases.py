"""The planted failures, with the truth of each: which rank is at fault, and at which line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("rank.py")
HELD_OUT_SCRIPT = Path(__file__).with_name("held_out.py")
HELD_OUT_2_SCRIPT = Path(__file__).with_name("held_out_2.py")
HELD_OUT_3_SCRIPT = Path(__file__).with_name("held_out_3.py")
HELD_OUT_4_SCRIPT = Path(__file__).with_name("held_out_4.py")
_MARK = "# fault: "


@dataclass(frozen=True, slots=True)
class Case:
    """A planted failure.

    Attributes:
        fault: its name in the script. ranks: of the job. faulty: the ranks that may be named; empty: the last.
        cause: as a report names it.
        script: that each rank runs.
    """

    fault: str
    ranks: int
    cause: str
    faulty: tuple[int, ...] = ()
    script: Path = SCRIPT

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
HELD_OUT = tuple(
    Case(fault, ranks, cause, faulty, HELD_OUT_SCRIPT)
    for fault, ranks, cause, faulty in (
        ("tokenizer_missing", 2, "exception", ()),
        ("checkpoint_of_other_shape", 2, "exception", ()),
        ("text_not_utf8", 2, "exception", ()),
        ("collate_asserts", 2, "exception", ()),
        ("backward_hook_raises", 2, "exception", ()),
        ("recursion_error", 2, "exception", ()),
        ("compiled_function_fails", 2, "exception", ()),
        ("interrupted", 3, "exception", ()),
        ("exit_in_thread", 2, "exited", ()),
        ("quota_at_checkpoint", 2, "exception", ()),
        ("rank_0_dies_at_import", 3, "exception", (0,)),
        ("raises_during_evaluation", 3, "exception", ()),
    )
)
"""Failures that were planted after the judge was written. The first run of them is a figure of failures that it did not know."""
HELD_OUT_2 = tuple(
    Case(fault, ranks, cause, faulty, HELD_OUT_2_SCRIPT)
    for fault, ranks, cause, faulty in (
        ("schema_error_in_shard", 2, "exception", ()),
        ("last_batch_is_smaller", 3, "exception", ()),
        ("too_many_open_files", 2, "exception", ()),
        ("terminated_from_outside", 3, "killed", ()),
        ("exit_in_hook", 2, "exited", ()),
        ("crash_in_thread", 2, "killed", ()),
        ("receives_what_nobody_sends", 3, "hang", ()),
        ("recompute_asserts", 2, "exception", ()),
        ("bus_error_in_worker", 2, "killed", ()),
        ("logged_error_before", 3, "exception", ()),
        ("user_watchdog", 3, "hang", ()),
        ("pool_task_raises", 2, "exception", ()),
    )
)
"""Another twelve, planted after what the first set had shown was fixed."""
HELD_OUT_3 = tuple(
    Case(fault, ranks, cause, faulty, HELD_OUT_3_SCRIPT)
    for fault, ranks, cause, faulty in (
        ("one_barrier_more", 3, "hang", ()),
        ("no_rendezvous", 3, "hang", ()),
        ("traceback_later_exits", 3, "hang", ()),
        ("cpu_limit", 2, "killed", ()),
        ("stopped_by_signal", 3, "hang", ()),
        ("pool_process_raises", 2, "exception", ()),
        ("async_task_raises", 2, "exception", ()),
        ("worker_exits", 2, "exited", ()),
    )
)
"""Eight, planted after what the second set had shown was fixed."""
HELD_OUT_4 = tuple(
    Case(fault, ranks, cause, (), HELD_OUT_4_SCRIPT)
    for fault, ranks, cause in (
        ("stream_ends_in_generator", 2, "exception"),
        ("alarm_raises", 2, "exception"),
        ("child_left_without_a_word", 3, "hang"),
        ("pool_thread_raises", 2, "exception"),
        ("crash_at_exit", 2, "killed"),
        ("own_function_has_no_backward", 3, "exception"),
        ("condition_is_never_notified", 2, "hang"),
        ("object_of_broadcast_is_none", 2, "exception"),
    )
)
"""Eight, planted after what the third set had shown was fixed."""
WITHOUT_LINE = frozenset(
    {
        "killed_from_outside",
        "too_few_batches",
        "loader_worker_killed",
        "terminated_from_outside",
        "bus_error_in_worker",
        "cpu_limit",
        "stopped_by_signal",
    }
)
"""Nothing of the rank's own code is at fault: no line may be named."""


def line_of(fault: str, script: Path = SCRIPT) -> int | None:
    """Return the line at which a fault strikes; None: at none.

    Raises:
        LookupError: the script has no such line.
    """
    if fault in WITHOUT_LINE:
        return None
    for number, line in enumerate(script.read_text().splitlines(), 1):
        if line.rstrip().endswith(f"{_MARK}{fault}"):
            return number
    raise LookupError(f"{script}: no line ends with {_MARK}{fault}")
