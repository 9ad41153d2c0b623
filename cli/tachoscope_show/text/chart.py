"""A line over an axis, as pages draw it: where each part of the picture stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Area:
    """Part of the horizontal axis, coloured from top to bottom."""

    x: float
    width: float
    color: str
    title: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line."""

    x1: float
    x2: float
    y1: float
    y2: float
    color: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """Words in the picture; in bold if they have a colour of their own."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    color: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of `width` by `height`, whose axes leave room for their labels. `points`: x, y and what pointing at one shows."""

    label: str
    color: str
    height: int
    left: int = 76
    width: int = 860
    top: int = 16
    room_below: int = 28
    points: list[tuple[float, float, str]] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    @property
    def right(self) -> int:
        """Where the axes end."""
        return self.width - 16

    @property
    def bottom(self) -> int:
        """Where the horizontal axis is."""
        return self.height - self.room_below

    def x(self, share: float) -> float:
        """Return where a share of the horizontal axis stands."""
        return self.left + (self.right - self.left) * share

    def y(self, share: float) -> float:
        """Return where a share of the vertical axis stands, counted from below."""
        return self.bottom - (self.bottom - self.top) * share

    def level(self, share: float, color: str, *, dashed: bool = False) -> None:
        """Draw a line from left to right."""
        self.rules.append(Rule(self.left, self.right, self.y(share), self.y(share), color, dashed))
