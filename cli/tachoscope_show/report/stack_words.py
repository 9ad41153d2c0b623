"""Stacks of the processes of a job that hangs, in words: one view for terminal, page and explorer."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_core.report.report import Report
from tachoscope_core.report.stack_groups import StackGroup, sentence

TITLE = "where its processes stood when it hung, the odd ones first"
_MOST_GROUPS = 12
_MOST_FRAMES = 12


@dataclass(frozen=True, slots=True)
class StackCard:
    """A group of processes: who stands where, the processes, and their frames, the innermost first."""

    heading: str
    processes: str
    frames: list[str]
    more_frames: int


def cards(report: Report) -> list[StackCard]:
    """Return the groups of a report, the odd ones first, at most a dozen."""
    return [_card(group) for group in report.stacks[:_MOST_GROUPS]]


def left_out(report: Report) -> str:
    """Return how many groups are not shown; empty: none."""
    more = len(report.stacks) - _MOST_GROUPS
    return f"{more} more groups (--format json has all)" if more > 0 else ""


def held(report: Report) -> str:
    """Return what a report on a moment without steps was made of."""
    return "what their processes did" if report.stacks else "what their flight recorders held"


def _card(group: StackGroup) -> StackCard:
    text = sentence(group)
    pids = ", ".join(map(str, group.pids[:16])) + (" ..." if len(group.pids) > 16 else "")
    what = "process" if len(group.pids) == 1 else "processes"
    states = f": {', '.join(group.states)}" if group.states else ""
    return StackCard(
        f"{text[:1].upper()}{text[1:]}",
        f"{what} {pids} on {', '.join(group.hosts)}{states}",
        group.frames[:_MOST_FRAMES],
        max(len(group.frames) - _MOST_FRAMES, 0),
    )
