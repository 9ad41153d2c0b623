"""What the user asks for who has a live inference server looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tachoscope_core.errors import TachoscopeError


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

    @property
    def option_given(self) -> str:
        """The option that was given, of those that a service's records take as well; empty: none."""
        return "--for" if self.for_ else "--device" if self.device else ""


def refuse_looks(option: str) -> None:
    """Refuse an option for inference servers with anything else.

    Raises:
        TachoscopeError: there is one.
    """
    if option:
        fix = "tachoscope serving http://HOST:PORT/metrics --for 60s"
        raise TachoscopeError(f"{option} applies to inference servers only", fix=fix)
