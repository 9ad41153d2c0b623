"""Writes llms.txt, the list of all pages for programs that read documentation: https://llmstxt.org."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECTIONS = {
    "start": "Start",
    "guides": "Guides",
    "agent": "The node agent",
    "concepts": "Concepts",
    "reference": "Reference",
    "develop": "Develop",
}
_MOST_CHARACTERS = 200


def text() -> str:
    """Return the list: title, what tachoscope is, and for each page its title, its path and how it begins."""
    what = next(line for line in (ROOT / "README.md").read_text().splitlines() if line and not line.startswith("#"))
    parts = ["# tachoscope", "", f"> {what}", "", "- [README](README.md): what it does, for whom, and its limits today"]
    for folder, title in SECTIONS.items():
        parts += ["", f"## {title}", *map(_line, sorted((ROOT / "docs" / folder).glob("*.md")))]
    parts += ["", "## Runbooks", *map(_line, sorted((ROOT / "runbooks").glob("*.md")))]
    return "\n".join(parts) + "\n"


def _line(path: Path) -> str:
    page = re.sub(r"```.*?```|<!--.*?-->", "", path.read_text(), flags=re.DOTALL)
    title = re.findall(r"^# (.*)$", page, flags=re.MULTILINE)[0]
    paragraphs = [" ".join(one.split()) for one in re.split(r"\n\s*\n|^#.*$", page, flags=re.MULTILINE)]
    begin = next((one for one in paragraphs if re.match(r"[A-Z`*\[]", one)), "").replace("**TL;DR** ", "")
    begin = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", begin)
    sentence = re.match(r".*?(?=[.:](?: |$)|$)", begin)
    words = sentence[0] if sentence else ""
    words = words if len(words) <= _MOST_CHARACTERS else words[:_MOST_CHARACTERS].rpartition(" ")[0] + " ..."
    return f"- [{title}]({path.relative_to(ROOT)})" + (f": {words}" if words else "")


def llms_file(*, write: bool) -> list[str]:
    """Write or check the file; return it if it was not current."""
    path, made = ROOT / "llms.txt", text()
    if path.exists() and path.read_text() == made:
        return []
    if write:
        path.write_text(made)
    return [path.name]
