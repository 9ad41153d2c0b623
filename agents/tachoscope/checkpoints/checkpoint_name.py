"""What a checkpoint is called in records: one name for what is saved and for what is restored, and no secrets in it."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tachoscope import arguments
from tachoscope_core.records.records import MAX_TEXT

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_TEMPORARY = re.compile(
    r"""\..*            # hidden, as editors and rsync write
    |.*~
    |tmp.*           # the tempfile module
    |(.*[._-])?(tmp|temp|part|partial|incomplete|writing|new)([._-].*)?""",
    re.IGNORECASE | re.VERBOSE,
)


def reference_of(target: Any) -> str:
    """Return the absolute path or the URL of a path, URL or open file, empty where it has none that can be recorded.

    Links are followed, so that what is read by `latest` is what was saved as `step-100`. Of a URL user, password, query and
    fragment are left out: there secrets stand, and what is signed again for each request would never be the same twice.
    """
    name = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
    if not isinstance(name, (str, os.PathLike)):  # a buffer in memory; a file opened by its descriptor has a number
        return ""
    path = os.fsdecode(name)
    if not path or "\0" in path:  # no file system allows a null byte
        return ""
    reference = without_secrets(path) if _URL.match(path) else os.path.realpath(path)
    return reference if len(reference) <= MAX_TEXT else ""


def recordable(value: Any, name: str) -> Any:
    """Return a path, URL or open file of the job as text; empty, with one line on stderr, if it cannot be recorded."""
    with arguments.ArgumentGuard(value, name):
        if reference_of(value):
            return value
        if not isinstance(value, str) or value:
            arguments.not_recorded(name, value, "no path or URL that can be recorded")
    return ""


def without_secrets(url: str) -> str:
    """Return the URL with neither user and password nor query and fragment."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return url.partition("?")[0].partition("#")[0].rpartition("@")[2]


def is_local(reference: str) -> bool:
    """Return whether it is a path of this host's file systems."""
    return bool(reference) and not _URL.match(reference)


def looks_temporary(reference: str) -> bool:
    """Return whether a name is that of an incomplete file, which is renamed once it is complete."""
    return is_local(reference) and _TEMPORARY.fullmatch(os.path.basename(reference)) is not None


def after_rename(reference: str, source: str, target: str) -> str | None:
    """Return what a reference is called after `source` was renamed to `target`, None if that did not rename it.

    Args:
        source: absolute path, its folder's links followed; a folder renames what is below it. target: likewise.
    """
    if reference == source:
        return target
    return target + reference[len(source) :] if reference.startswith(source + os.sep) else None


def absolute_path(path: Any) -> str:
    """Return the absolute path of a name that is about to be given or was just given away: only its folder's links are followed."""
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    return os.path.join(os.path.realpath(folder), name)
