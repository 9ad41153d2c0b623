"""What the preview's pages ask its server: a board's frame, what one panel draws, and the marks. No query comes from a page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_preview import annotations as marks
from grafana_preview import choices, drawing, markdown, times
from grafana_preview import interpolate as filling
from grafana_preview.interpolate import Choice
from grafana_preview.loading import Board
from grafana_preview.query import Asked
from grafana_preview.times import Span
from tachoscope_core.redaction import redact

Parameters = Mapping[str, Sequence[str]]
_WIDTH, _MOST_WIDTH = 800, 4000


@dataclass(frozen=True, slots=True)
class Preview:
    """The boards by uid, and the Prometheus that they are drawn from.

    Attributes:
        since: from when on they look at first; empty: as they say. at: the Unix seconds that `now` means, if it is not now.
    """

    boards: Mapping[str, Board]
    url: str
    since: str = ""
    at: float | None = None

    def frame(self, uid: str, asked: Parameters) -> dict[str, Any]:
        """Return a board without its data: variables with options, panels with their places and words, and the time.

        Raises:
            KeyError: there is no such board. ValueError: the time is none. TachoscopeError: Prometheus does not answer.
        """
        board = self.boards[uid]
        span, words = self._span(board, asked), self._words(board, asked)
        start, end = round(span.start * 1000), round(span.end * 1000)
        if self.at is not None:  # which a page that says `now` would not tell
            words = {"from": str(start), "to": str(end)}
        found = choices.choices(board, asked, self.url, span)
        return {
            "uid": uid,
            "title": board["title"],
            "refresh": board.get("refresh") or "",
            "time": {**words, "start": start, "end": end},
            "boards": [{"uid": one["uid"], "title": one["title"]} for one in self.boards.values()],
            "prometheus": redact(self.url),
            "variables": [_variable(one) for one in found],
            "panels": [_panel(panel, found, span) for panel in _panels(board)],
        }

    def panel(self, uid: str, number: str, asked: Parameters) -> dict[str, Any]:
        """Return what a panel draws.

        Raises:
            KeyError: there is no such board or panel. ValueError: the time or the width is none. TachoscopeError: as `frame`.
        """
        board = self.boards[uid]
        panel = next((one for one in _panels(board) if str(one["id"]) == number), None)
        if panel is None:
            raise KeyError(number)
        span = times.at_least(self._span(board, asked), str(panel.get("interval", "")))
        return drawing.draw(panel, Asked(self.url, span, self._chosen(board, asked, span)))

    def marks(self, uid: str, asked: Parameters) -> dict[str, Any]:
        """Return the marks of a board.

        Raises:
            KeyError: there is no such board. ValueError: the time is none. TachoscopeError: as `frame`.
        """
        board = self.boards[uid]
        span = self._span(board, asked)
        return marks.marks(board, self.url, span, self._chosen(board, asked, span))

    def _chosen(self, board: Board, asked: Parameters, span: Span) -> list[Choice]:
        """Return what the page chose; Prometheus is asked for options only where all are those that it has."""
        found = choices.chosen(board, asked)
        needs_options = any(one.is_all and not one.all_value for one in found)
        return choices.choices(board, asked, self.url, span) if needs_options else found

    def _words(self, board: Board, asked: Parameters) -> dict[str, str]:
        """Return the time range as people choose it."""
        own = board.get("time", {})
        since = self.since or own.get("from", "now-6h")
        return {"from": (asked.get("from") or [since])[0], "to": (asked.get("to") or [own.get("to", "now")])[0]}

    def _span(self, board: Board, asked: Parameters) -> Span:
        now, words = time.time() if self.at is None else self.at, self._words(board, asked)
        width = int((asked.get("width") or [str(_WIDTH)])[0])
        return times.span(times.moment(words["from"], now), times.moment(words["to"], now), min(width, _MOST_WIDTH))


def _panels(board: Board) -> list[Mapping[str, Any]]:
    """Return all panels, also those in rows that are folded."""
    return [one for panel in board["panels"] for one in (panel, *panel.get("panels", ()))]


def _variable(one: Choice) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.title,
        "several": one.several,
        "all": filling.ALL if one.may_be_all else "",
        "options": one.options,
        "values": one.values,
    }


def _panel(panel: Mapping[str, Any], found: Sequence[Choice], span: Span) -> dict[str, Any]:
    def words(text: str) -> str:
        return filling.plain(text, found)

    def address(url: str) -> str:
        return filling.link(url, found, span)

    links = [{"title": words(link["title"]), "url": address(link["url"])} for link in panel.get("links", ())]
    content = panel.get("options", {}).get("content", "")
    return {
        "id": panel["id"],
        "type": panel["type"],
        "title": words(panel.get("title", "")),
        "about": markdown.nodes(panel.get("description", ""), words, address),
        "place": panel["gridPos"],
        "links": [link for link in links if link["url"]],
        "words": markdown.nodes(content, words, address) if panel["type"] == "text" else [],
        "asks": panel["type"] not in {"text", "row"},
        "bare": bool(panel.get("transparent")),
    }
