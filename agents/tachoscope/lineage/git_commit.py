"""Which git commit is checked out around a file, read from the repository's own files: starting `git` would take too long.

The layout is https://git-scm.com/docs/gitrepository-layout; one whose references are in the reftable format tells nothing here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MAX_PARENTS = 40
_MAX_LINKS = 5
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Repository:
    """A working tree and the commit that is checked out in it, as hexadecimal digits."""

    root: Path
    commit: str


def repository_of(path: Path) -> Repository | None:
    """Return the repository whose working tree holds an absolute path, None if there is none or its commit cannot be read."""
    for folder in list(path.parents)[:_MAX_PARENTS]:
        directory = folder / ".git"
        try:
            if directory.is_file():  # a worktree or a submodule
                pointed = _text(directory).removeprefix("gitdir:").strip()
                directory = folder / pointed
            elif not directory.is_dir():
                continue
            commit = _commit(directory, "HEAD")
        except OSError:
            return None
        return Repository(folder, commit) if commit else None
    return None


def _commit(directory: Path, reference: str) -> str:
    shared = directory
    common = directory / "commondir"
    if common.is_file():
        shared = directory / _text(common).strip()
    for _ in range(_MAX_LINKS):
        if ".." in reference.split("/"):
            return ""
        file = next((place / reference for place in (directory, shared) if (place / reference).is_file()), None)
        said = _text(file).strip() if file is not None else _packed(shared, reference)
        if not said.startswith("ref:"):
            return said if _OBJECT.fullmatch(said) else ""
        reference = said.removeprefix("ref:").strip()
    return ""


def _packed(shared: Path, reference: str) -> str:
    try:
        packed = (shared / "packed-refs").read_bytes()
    except FileNotFoundError:
        return ""
    found = re.search(rb"^([0-9a-f]{40,64}) " + re.escape(reference.encode()) + rb"$", packed, re.MULTILINE)
    return found.group(1).decode() if found else ""


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(4096)
