"""How the ranks are laid out in parallel dimensions, where the job says so: `tachoscope.describe(layout=...)` or the environment.

    TACHOSCOPE_LAYOUT=pp=4,dp=2

The first dimension is the outermost, whose groups lie farthest apart: here the stages are ranks 0 and 1, 2 and 3, and so on, as
Megatron and torch's device meshes number them. What the given dimensions do not fill is data parallel, innermost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tachoscope import guard

VARIABLE = "TACHOSCOPE_LAYOUT"
DIMENSIONS = ("pp", "dp", "tp", "cp", "ep")

_said: dict[str, int] = {}


def describe(layout: Mapping[str, int]) -> None:
    """Remember what the job says; see `tachoscope.describe`.

    Raises:
        ValueError: no parallel dimension of that name, or no size.
    """
    checked = _checked(layout)
    _said.clear()
    _said.update(checked)


def of_process(environ: Mapping[str, str], rank: int, world_size: int) -> dict[str, Any]:
    """Return the fields `layout` and `groups` of `JobStarted`; both absent where nobody said anything, or what does not fit."""
    try:
        sizes = complete(_said or parsed(environ.get(VARIABLE, "")), world_size)
    except ValueError as error:
        guard.print_line(f"the layout of the ranks is not recorded: {error}")
        return {}
    return {"layout": sizes, "groups": groups_of(rank, sizes)} if sizes else {}


def parsed(text: str) -> dict[str, int]:
    """Return the sizes in text such as `pp=4,dp=2`, in their order.

    Raises:
        ValueError: it is no such text.
    """
    pairs = [part.partition("=") for part in text.replace(" ", "").split(",") if part]
    if any(not size.isdigit() for _, _, size in pairs):
        raise ValueError(f"{text!r} is not of the form pp=4,dp=2")
    return _checked({name: int(size) for name, _, size in pairs})


def _checked(layout: Mapping[str, int]) -> dict[str, int]:
    for name, size in layout.items():
        if name not in DIMENSIONS:
            raise ValueError(f"unknown parallel dimension {name!r}; valid dimensions: {', '.join(DIMENSIONS)}")
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name}={size!r} is not a size")
    return dict(layout)


def complete(layout: Mapping[str, int], world_size: int) -> dict[str, int]:
    """Return the sizes with what is missing to the world size as `dp`; empty for an empty layout.

    Raises:
        ValueError: the sizes do not fit the world size.
    """
    if not layout:
        return {}
    missing, rest = divmod(world_size, math.prod(layout.values()))
    if rest or (missing > 1 and "dp" in layout):
        sizes = ", ".join(f"{name}={size}" for name, size in layout.items())
        raise ValueError(f"{sizes} does not make {world_size} ranks")
    return dict(layout) if missing == 1 else {**layout, "dp": missing}


def groups_of(rank: int, layout: Mapping[str, int]) -> dict[str, list[list[int]]]:
    """Return by dimension the group that a rank is in; `layout` fills the world and has the outermost dimension first."""
    found, stride = {}, math.prod(layout.values())
    for name, size in layout.items():
        stride //= size
        first = rank - rank // stride % size * stride
        found[name] = [[first + index * stride for index in range(size)]]
    return found
