"""A console for texts that others wrote: names in records may hold what a terminal would obey."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from tachoscope_show.text.safe_text import safe


class SafeConsole(Console):
    """Draws as rich does; only what rich itself says steers the terminal."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(safe(segment.text), segment.style)
