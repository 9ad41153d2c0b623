"""How records name the ranks of a process group: the one place where who writes and who reads agree."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_RANKS_NAMED = 16


def group_name(ranks: Sequence[int], world_size: int) -> str:
    """Return the name of a group of global ranks in a job of so many; empty: all ranks."""
    if len(ranks) == world_size:
        return ""
    named = ",".join(map(str, ranks[:_MOST_RANKS_NAMED]))
    return named if len(ranks) <= _MOST_RANKS_NAMED else f"{named},... ({len(ranks)} ranks)"
