"""The words of boards, which are Markdown, as trees of a few elements; what would be HTML in them stays text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from grafana_preview import interpolate as filling

Node = str | dict[str, Any]
Fill = Callable[[str], str]
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
_PARSER.normalizeLink = lambda url: url  # type: ignore[method-assign]  # ${...} in an address stays readable until it is filled in
_ELEMENTS = {
    **{name: name for name in ("strong", "em", "table", "thead", "tbody", "tr", "th", "td", "blockquote", "hr")},
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "hardbreak": "br",
}


def nodes(text: str, words: Fill = str, address: Fill = filling.safe) -> list[Node]:
    """Return text as it is, or an element: its `tag`, what is `in` it, and the `url` of a link.

    Args:
        words, address: fill in variables in text and in the addresses of links; an empty address makes no link. They are called
            after the Markdown was read, so that a value that looks like Markdown is none.
    """

    def children(node: SyntaxTreeNode) -> list[Node]:
        return [found for child in node.children for found in made(child)]

    def made(node: SyntaxTreeNode) -> list[Node]:
        if node.type in {"text", "softbreak"}:
            return [words(node.content) or " "]
        if node.type in {"code_inline", "fence", "code_block"}:
            return [{"tag": "code" if node.type == "code_inline" else "pre", "in": [words(node.content)]}]
        if node.type == "heading":
            return [{"tag": node.tag, "in": children(node)}]
        if node.type == "link":
            url = address(str(node.attrs.get("href", "")))
            return [{"tag": "a", "in": children(node), "url": url}] if url else children(node)
        if node.type in _ELEMENTS:
            return [{"tag": _ELEMENTS[node.type], "in": children(node)}]
        return children(node)

    return children(SyntaxTreeNode(_PARSER.parse(text)))
