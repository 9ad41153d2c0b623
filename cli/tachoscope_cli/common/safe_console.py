"""The console for results. It is apart from what writes them, because rich takes a twentieth of a second to import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment

from tachoscope_show.text.safe_text import safe


class SafeConsole(Console):
    """Draws as rich does; only what rich itself says steers the terminal. What looks like markup or an emoji's name is none."""

    def __init__(self, *, file: TextIO | None = None, width: int | None = None) -> None:
        super().__init__(file=file, width=width, highlight=False, markup=False, emoji=False)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(safe(segment.text), segment.style)
