"""How much of a limit one user may take: the users of a node do not trust each other, and nobody may use up all that there is."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

T = TypeVar("T")


def has_room(held: Counter[T], user: T, limit: int) -> bool:
    """Return whether a user may hold one more.

    One user gets at most three quarters of what the others have not taken, so that the next user finds room.

    Args:
        held: how much each user holds. user: None where nobody knows: then all belongs to one user, who may have all.
        limit: what all may hold together.
    """
    if user is None:
        return held.total() < limit
    left = limit - held.total() + held[user]
    return held[user] < left - left // 4
