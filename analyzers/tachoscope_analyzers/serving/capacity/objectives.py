"""Latency objectives of a server: a quantile of a time, and what it may be."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tachoscope_core.errors import TachoscopeError

SIGNALS = {
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "tpot": "mean time per output token of a request",
    "e2e": "time of the whole request",
    "queue": "time in the queue",
}
_FORM = re.compile(r"([a-z0-9]+)_p(\d{1,2}(?:\.\d+)?)=(.+)")


@dataclass(frozen=True, slots=True)
class Objective:
    """`percent` of the values of a signal are to be at most `seconds`."""

    signal: str
    percent: float
    seconds: float

    @property
    def name(self) -> str:
        """As it is written: `ttft_p95`."""
        return f"{self.signal}_p{self.percent:g}"

    def __str__(self) -> str:
        return f"{self.name} <= {self.seconds:g} s"


DEFAULTS = (Objective("ttft", 99, 2.5), Objective("ttft", 95, 0.5), Objective("itl", 99, 0.1))
"""Interactive use: MLPerf Inference 5.0 (0.45 s, 40 ms) and GuideLLM (0.2 s, 50 ms) are stricter for chat."""


def objective(text: str) -> Objective:
    """Return the objective that a text such as `ttft_p95=0.5` states, in seconds.

    Raises:
        TachoscopeError: it is not of that form.
    """
    found = _FORM.fullmatch(text.strip())
    fix = f"write it as ttft_p95=0.5, in seconds; there are {', '.join(SIGNALS)}"
    if found is None or found[1] not in SIGNALS:
        raise TachoscopeError(f"{text!r} is not an objective", fix=fix)
    try:
        percent, seconds = float(found[2]), float(found[3])
    except ValueError:
        raise TachoscopeError(f"{found[3]!r} in the objective {text!r} is not a number", fix=fix) from None
    if not 0 < percent < 100 or not 0 < seconds < float("inf"):
        raise TachoscopeError(f"the objective {text!r} asks for {percent:g} % within {seconds:g} s", fix=fix)
    return Objective(found[1], percent, seconds)
