"""Where a runbook lies on this machine: in the source tree, or in the installed package."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = re.compile(r"runbooks/[A-Za-z0-9][A-Za-z0-9_-]*\.md")
"""Nothing else is opened: a report is a document that anybody may have written, and names its own runbooks."""
_PLACES = (Path(__file__).parents[1], Path(__file__).parents[3])


def path_of(runbook: str) -> str:
    """Return the path of a runbook as a person can open it from here, or the report's own words where it is not installed."""
    path = _found(runbook)
    if path is None:
        return runbook
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def text_of(runbook: str) -> str:
    """Return a runbook's text, "" where it is not installed."""
    path = _found(runbook)
    return path.read_text() if path is not None else ""


def folder() -> Path:
    """Return the folder of all runbooks; there may be none where tachoscope is not installed as a whole."""
    return next((place / "runbooks" for place in _PLACES if (place / "runbooks").is_dir()), Path("runbooks"))


def of_project() -> Path:
    """Return the folder of runbooks that alerts and boards are compared with: that of a project here, else what was installed."""
    return Path("runbooks") if Path("runbooks").is_dir() else folder()


def names() -> list[str]:
    """Return the names of the pages that are installed, without `.md`; none where none are."""
    folders = (place / "runbooks" for place in _PLACES)
    pages = next((sorted(folder.glob("*.md")) for folder in folders if folder.is_dir()), [])
    return [page.stem for page in pages if page.stem != "README"]


def _found(runbook: str) -> Path | None:
    if not _PAGE.fullmatch(runbook):
        return None
    return next((place / runbook for place in _PLACES if (place / runbook).is_file()), None)
