"""What torch keeps of its own compilations, read from outside: places, seconds, guards that failed, limits, graph breaks by line.

Read are two names of `torch._dynamo.utils`: `_compilation_metrics`, the last 64 compilations, and `graph_break_reasons`. What a
version of torch does not keep is not known: older ones keep no guard that failed, and nothing of a limit that was hit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tachoscope.sampling.stacks import is_users_file
from tachoscope_core.records.records import DYNAMO_RESET

MOST_CODES = 4_096
MOST_BREAKS = 1_000
MOST_BREAKS_A_RECORD = 32
_MOST_REASON = 400
_LIMIT = re.compile(r"\b(\w*(?:recompile|cache_size)_limit)\b")
_LIMIT_VALUE = re.compile(r"currently set to (\d+)")


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation; the other attributes are those of `CompilationDone`. `end_seconds`: Unix seconds of its end."""

    end_seconds: float
    seconds: float
    place: str
    compile_id: str
    recompiled: bool
    reason: str
    limit: str
    failure: str
    backward: bool


class DynamoMetrics:
    """Reads what is new at each call. Reads on one thread, while others compile.

    Args:
        utils: the module `torch._dynamo.utils`.

    Attributes:
        missed: torch dropped what was read last: there may have been compilations between that and what it kept.
    """

    def __init__(self, utils: Any) -> None:
        self._utils = utils
        self._last: Any = None
        self.missed = False
        self._codes: dict[str, tuple[str, bool]] = {}
        self._places: set[str] = set()
        self._forgotten: set[str] = set()
        self._breaks_read = 0
        self._breaks: set[str] = set()

    @property
    def is_kept(self) -> bool:
        """Whether this version of torch keeps its compilations where they are looked for."""
        return hasattr(self._utils, "_compilation_metrics")

    def new_compilations(self) -> list[Compilation]:
        """Return the compilations that ended since the last call, without what is tuned when code first runs."""
        rows = list(getattr(self._utils, "_compilation_metrics", ()))
        new = _after(rows, self._last)
        self.missed = self.missed or (self._last is not None and len(new) == len(rows))
        if new:
            self._last = new[-1]
        return [self._compilation(row) for row in new if not getattr(row, "is_runtime", False)]

    def new_graph_breaks(self) -> dict[str, str]:
        """Return the lines at which code could not be compiled in one piece and that were not returned before, with the reason."""
        kept = getattr(self._utils, "graph_break_reasons", ())
        if len(kept) < self._breaks_read:  # torch._dynamo.reset
            self._breaks_read = 0
        rows = kept[self._breaks_read : self._breaks_read + MOST_BREAKS_A_RECORD]
        self._breaks_read += len(rows)
        found = {place: _first_line(row.reason) for row in rows if (place := _break_place(row.user_stack))}
        new = {place: reason for place, reason in found.items() if place not in self._breaks}
        if len(self._breaks) < MOST_BREAKS:
            self._breaks |= new.keys()
        return new

    def _compilation(self, row: Any) -> Compilation:
        compile_id = str(getattr(row, "compile_id", None) or "")
        code = compile_id.rpartition("/")[0]
        backward = getattr(row, "is_forward", None) is False
        reason = _first_line(getattr(row, "recompile_reason", None))
        place = _code_place(row)
        recompiled = bool(reason) or bool(getattr(row, "cache_size", None))
        if place and compile_id.endswith("/0") and not recompiled and self._was_forgotten(code, place):
            reason, recompiled = DYNAMO_RESET, True
        if place and compile_id and len(self._codes) < MOST_CODES:
            self._codes[compile_id] = place, recompiled
            self._codes[code] = place, False
        if place and len(self._places) + len(self._forgotten) < MOST_CODES:
            self._places.add(place)
        known = self._codes.get(compile_id) or self._codes.get(code) or ("", False)
        seconds, end = _times(row, backward=backward)
        return Compilation(
            end_seconds=end,
            seconds=seconds,
            place=place or known[0],
            compile_id=compile_id[:256],
            recompiled=recompiled or (backward and known[1]),
            reason=reason,
            limit=_limit(getattr(row, "fail_type", None), getattr(row, "fail_reason", None)),
            failure=str(getattr(row, "fail_type", None) or "")[:256],
            backward=backward,
        )

    def _was_forgotten(self, code: str, place: str) -> bool:
        """Return whether torch compiled the code before `torch._dynamo.reset`, after which it numbers codes from 0 again.

        Args:
            code: its number, in its first compilation.
        """
        if code in self._codes:
            self._codes.clear()
            self._forgotten, self._places = self._forgotten | self._places, set()
        return place in self._forgotten


def _after(rows: Sequence[Any], last: Any) -> Sequence[Any]:
    """Return the rows after a known one; all where it is gone."""
    for place in range(len(rows) - 1, -1, -1):
        if rows[place] is last:
            return rows[place + 1 :]
    return rows


def _times(row: Any, *, backward: bool) -> tuple[float, float]:
    """Return how long a compilation took, and its end in Unix seconds."""
    start, end = (float(getattr(row, name, None) or 0.0) / 1e6 for name in ("start_time_us", "end_time_us"))
    start = start or float(getattr(row, "start_time", None) or 0.0)
    own = (
        float(getattr(row, "backward_cumulative_compile_time_us", None) or 0.0) / 1e6
        if backward
        else float(getattr(row, "entire_frame_compile_time_s", None) or 0.0)
    )
    seconds = max(own or end - start, 0.0) if end else max(own, 0.0)
    return seconds, end or start + seconds


def _code_place(row: Any) -> str:
    name = getattr(row, "co_filename", None)
    return _place(name, getattr(row, "co_firstlineno", None), getattr(row, "co_name", None)) if name else ""


def _break_place(stack: Iterable[Any]) -> str:
    """Return the innermost line of the user's code in a stack whose innermost frame comes last, else the innermost line."""
    frames = list(stack)
    of_user = [frame for frame in frames if is_users_file(frame.filename)]
    chosen = of_user or frames
    return _place(chosen[-1].filename, chosen[-1].lineno, chosen[-1].name) if chosen else ""


def _place(file: object, line: object, function: object) -> str:
    return f"{os.path.basename(str(file))}:{line} {function}"[:1024]


def _limit(failure: object, why: object) -> str:
    """Return the limit that torch says it hit, with its value where it says that; empty: none."""
    text = str(why or "")
    found = _LIMIT.search(text)
    if found is None:  # of code that must be compiled as a whole
        return "recompile_limit" if "LimitHit" in str(failure or "") else ""
    value = _LIMIT_VALUE.search(text)
    return f"{found[1]} ({value[1]})" if value else found[1]


def _first_line(text: object) -> str:
    return str(text or "").strip().partition("\n")[0][:_MOST_REASON]
