"""The form of an error without what differs from rank to rank and from attempt to attempt: numbers, addresses, directories."""

from __future__ import annotations

import re

_MOST_CHARACTERS = 400
_VARIABLE = re.compile(
    r"0x[0-9a-fA-F]+"
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b[0-9a-fA-F]{16,}\b"
    r"|\d+(?:\.\d+)*"
)
_DIRECTORIES = re.compile(r"(?:/[^\s/'\":,]+)+/(?=[^\s/'\":,])")


def template_of(message: str) -> str:
    """Return the template of a message; messages with the same one say the same."""
    return _VARIABLE.sub("#", _DIRECTORIES.sub("", message[:_MOST_CHARACTERS])).strip()
