"""Processes of a job that hangs, grouped by where they stand: the part of a report that shows stacks."""

from __future__ import annotations

from typing import Literal

import msgspec

WaitsFor = Literal["", "others", "loader", "device", "work"]
"""What a process waits for: other ranks in a collective, a worker of its loader, its device, a batch to load. Empty: none."""


class StackGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Processes whose training thread (of a loader worker: its main thread) has one stack.

    Attributes:
        kind: what they are. ranks: of each, sorted; of a loader worker the rank that it loads for. pids: theirs, on `hosts`.
        where: the line of user code, `file:line function`; of none the innermost one; empty: no stack is known.
        frames: Python frames as `path:line function`, the innermost first.
        states: states of the threads in the kernel, and the kernel function they sleep in, such as `D fuse_dev_do_read`.
        named: the rank that the others wait for is among them, as who noticed the hang judged.
    """

    kind: Literal["rank", "loader_worker", "child"]
    ranks: list[int]
    pids: list[int]
    hosts: list[str]
    waits_for: WaitsFor
    where: str
    frames: list[str]
    states: list[str]
    named: bool = False


def sentence(group: StackGroup) -> str:
    """Return who stands where, in one sentence without a stop."""
    who = _who(group)
    stand = "stands" if len(group.pids) == 1 else "stand"
    place = group.where or "where no Python stack could be read"
    waiting = {
        "others": f"{'waits' if len(group.pids) == 1 else 'wait'} for other ranks in {place}",
        "loader": f"{'waits' if len(group.pids) == 1 else 'wait'} for a loader worker in {place}",
        "device": f"{'waits' if len(group.pids) == 1 else 'wait'} for the device in {place}",
        "work": f"{'waits' if len(group.pids) == 1 else 'wait'} for a batch to load",
        "": f"{stand} in {place}" if group.where else f"{stand} {place}",
    }[group.waits_for]
    kernel = ", ".join(group.states[:2])
    return f"{who} {waiting}{f' ({kernel})' if kernel and group.waits_for in ('', 'device') else ''}"


def _who(group: StackGroup) -> str:
    ranks = sorted(set(group.ranks))
    listed = ", ".join(map(str, ranks[:8])) + (" ..." if len(ranks) > 8 else "")
    of = f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
    if group.kind == "rank":
        return of
    what = "loader worker" if group.kind == "loader_worker" else "child process"
    return f"{what}{'' if len(group.pids) == 1 else 's'} {', '.join(map(str, group.pids[:4]))} of {of}"
