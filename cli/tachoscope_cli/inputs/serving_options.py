"""What is asked of a live inference server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """How to look; lengths of time as written.

    Attributes:
        server: URL of a metrics page, or with `prometheus` a selector of series. save: file to keep what was seen in.
        device: name of the server's accelerator, empty: not said. name: what the report is called; empty: the server's address.
    """

    server: str
    for_: str | None = None
    every: str | None = None
    prometheus: str | None = None
    save: Path | None = None
    device: str = ""
    name: str = ""
