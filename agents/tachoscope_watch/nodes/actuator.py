"""The interface through which nodes are drained and resumed. Nodes that other users drained are left alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tachoscope_watch.nodes.states import Seen

MARK = "tachoscope: "
"""Reasons of drained nodes begin with it: others are left alone."""
_MOST_REASON = 200


class Actuator(Protocol):
    """A scheduler. Methods raise TachoscopeError where it does not answer or refuses."""

    name: str

    @property
    def starts_tests(self) -> bool:
        """Whether `test` does anything; else the nodes ask for their tests themselves."""
        ...

    def nodes(self, now: float, out: Collection[str]) -> dict[str, Seen]:
        """Return all its nodes at a time, Unix seconds. out: of others `busy` need not be known."""
        ...

    def drain(self, node: str, reason: str) -> None:
        """Give a node no new jobs; those that run go on."""
        ...

    def resume(self, node: str) -> None:
        """Undo `drain`, and only that."""
        ...

    def test(self, node: str, test: str, seconds: float) -> None:
        """Start a test of a node that is out, ended after so many seconds; one that was started before is not started again."""
        ...


def reason_text(why: str) -> str:
    """Return a reason as a scheduler keeps it: one short line with the mark."""
    words = "".join(letter if letter.isprintable() and letter.isascii() else " " for letter in why)
    return (MARK + " ".join(words.replace('"', "'").split()))[:_MOST_REASON]
