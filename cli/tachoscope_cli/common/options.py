"""What several commands share: where the store is, how to print, what they need, and lines on stderr.

It loads little: a shell that completes a word imports it each time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tachoscope_core import extras
from tachoscope_core.redaction import redact
from tachoscope_show.text.safe_text import safe

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Directory or s3:// URL. Default: $TACHOSCOPE_STORE, else the user's data directory.",
    ),
]

CheckOption = Annotated[
    bool, typer.Option("--check", help="Write nothing: list files that are not current, and exit with 1 if there are any.")
]
PricesOption = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help="Prices of a device hour, instead of the built-in ones.")
]

TextOrJson = StrEnum("TextOrJson", ["text", "json"])
TextJsonOrHtml = StrEnum("TextJsonOrHtml", ["text", "json", "html"])
JsonOption = Annotated[
    TextOrJson, typer.Option("--format", help="text for people, json for programs (docs/reference/programs.md).")
]
FormatOption = Annotated[TextJsonOrHtml, typer.Option("--format", help="text for people, json for programs, html to pass on.")]
TEXT = TextOrJson["text"]
TEXT_OF_THREE = TextJsonOrHtml["text"]


def store_url(store: str | None) -> str:
    """Return the store that the user named, else the default one."""
    from tachoscope_core.storage.store import default_url

    return store or default_url()


def named_store(store: str | None) -> str | None:
    """Return the store that the user named, by --store or $TACHOSCOPE_STORE; None: a live agent's."""
    return store or os.environ.get("TACHOSCOPE_STORE")


def needs_analysis() -> None:
    """Check that what `tachoscope[analyze]` brings is here.

    Raises:
        TachoscopeError: a package is missing.
    """
    extras.require("analyze")


def needs_dashboards(*modules: str) -> None:
    """Check that what `tachoscope[dashboards]` brings for a command is here.

    Raises:
        TachoscopeError: a package is missing.
    """
    needs_analysis()
    extras.require("dashboards", *modules)


def print_notice(text: str) -> None:
    """Print a line about what was done, beside the results; secrets, such as in a store's URL, are redacted."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it, or it is closed
        sys.stderr.write(f"tachoscope: {safe(redact(text))}\n")
