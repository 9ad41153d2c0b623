"""Expands the node lists of Slurm: `gpu[001-003,007]` are four nodes."""

from __future__ import annotations

import itertools
import re

MAX_NODES = 100_000
"""A list of more nodes than any cluster has is a damaged one; it would fill the memory."""

_NAME = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def is_none(text: str) -> bool:
    """Return whether a list has no nodes: it is empty, or `None assigned` and the like."""
    return text.strip() in {"", "None assigned", "(null)", "None", "Unknown"}


def expand(text: str) -> tuple[str, ...]:
    """Return the names of the nodes in their order; none for `None assigned` and the like.

    The form is that of `scontrol show hostnames` (https://slurm.schedmd.com/scontrol.html): names divided by commas, each
    with any number of ranges in brackets; leading zeros are kept.

    Raises:
        ValueError: a range is not a range, or there are more than `MAX_NODES`.
    """
    if is_none(text):
        return ()
    names: list[str] = []
    for found in _NAME.finditer(text.strip()):
        parts = [_values(part.group(1)) if part.group(1) is not None else [part.group(2)] for part in _PART.finditer(found.group())]
        names += ("".join(choice) for choice in itertools.islice(itertools.product(*parts), MAX_NODES + 1))
        if len(names) > MAX_NODES:
            raise ValueError(f"node list {text[:60]!r} names more than {MAX_NODES:,} nodes")
    return tuple(dict.fromkeys(names))


def _values(ranges: str) -> list[str]:
    values: list[str] = []
    for one in ranges.split(","):
        found = _RANGE.fullmatch(one)
        if not found:
            raise ValueError(f"node list has a range {one!r}")
        first, last = found.group(1), found.group(2) or found.group(1)
        if int(last) - int(first) >= MAX_NODES:
            raise ValueError(f"node list has a range of more than {MAX_NODES:,}: {one!r}")
        values += (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return values
