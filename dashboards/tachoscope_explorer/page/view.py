"""What a page looks at, as its address says it, so that every view can be sent as a link.

`/<page>?job=NAME&rank=3&from=MS&to=MS`: times are Unix milliseconds, as Grafana's boards write them. What an address gets wrong is
said on the page and left out of the view; it never fails. Windows of traces are narrower than a millisecond: there `from` and `to`
have up to three decimals.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace

_SEVERAL = re.compile(r"\{(.*)\}")
_MOST_CHARACTERS = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}|\([a-z]+\)")
"""A name of something in the store, see `records.check_job_name`, or what stands for a job that is not there."""
_LAST_MOMENT = 253402300800.0  # the year 10000


@dataclass(frozen=True, slots=True)
class View:
    """What is chosen; empty or None: nothing.

    Attributes:
        job, baseline: names of jobs. service, model: of inference. trace: a recording of the job's traces; baseline_trace: of the
            baseline's. without: causes to take out, with commas between them, see `what_if.removal_of`.
        class_: a bottleneck class. slo: an objective. part: what of a page is open. rank: a rank.
        start, end: Unix seconds; of a trace that does not tell the date, seconds of its own clock.
        wrong: what the address said that cannot be, a sentence each.
    """

    job: str = ""
    baseline: str = ""
    service: str = ""
    model: str = ""
    trace: str = ""
    baseline_trace: str = ""
    without: str = ""
    class_: str = ""
    slo: str = ""
    part: str = ""
    rank: int | None = None
    start: float | None = None
    end: float | None = None
    wrong: tuple[str, ...] = ()


_PLAIN = ("job", "baseline", "service", "model", "trace", "baseline_trace", "without", "slo", "part")
_TEXTS = {name: name for name in _PLAIN} | {"class": "class_"}
"""Parameters of an address that are text, with the field that each goes to."""

_NAMES = {"job", "baseline"}
_FILES = {"trace", "baseline_trace"}
"""Of the parameters that lead to files: names of folders in the store, and a recording or, after a slash, a file of it."""


def view_of(parameters: Mapping[str, str]) -> View:
    """Return the view that the parameters of an address ask for."""
    view, wrong = View(), list[str]()
    for name, field in _TEXTS.items():
        text = parameters.get(name, "")
        several = _SEVERAL.fullmatch(text)
        if several:  # as a board writes a variable of which several values are chosen
            text = several[1].split(",")[0]
            wrong.append(f"the address names several values of {name}; the first, {text!r}, is shown")
        if len(text) > _MOST_CHARACTERS:
            wrong.append(f"{name} in the address is longer than {_MOST_CHARACTERS} characters")
        elif text and name in _NAMES and not _NAME.fullmatch(text):
            wrong.append(f"{name}={text[:40]!r} in the address is not a name: of letters, digits, '.', '_' and '-', at most 128")
        elif text and name in _FILES and not _is_file(text):
            wrong.append(f"{name}={text[:40]!r} in the address is not a recording, and no recording with a file of it")
        else:
            view = replace(view, **{field: text})  # type: ignore[arg-type]  # fields that are text
    rank = parameters.get("rank", "")
    if re.fullmatch(r"\d{1,7}", rank):
        view = replace(view, rank=int(rank))
    elif rank:
        wrong.append(f"rank {rank[:40]!r} in the address is not a whole number")
    start, end = (_moment(parameters.get(name, ""), name, wrong) for name in ("from", "to"))
    if start is not None and end is not None and start >= end:
        wrong.append("the window in the address ends before it begins")
        start = end = None
    return replace(view, start=start, end=end, wrong=tuple(wrong))


def _is_file(text: str) -> bool:
    recording, slash, file = text.partition("/")
    sound = bool(file) and file.isprintable() and not set(file) & {"/", "\\"} and file not in {".", ".."}
    return bool(_NAME.fullmatch(recording)) and (sound or not slash)


def _moment(text: str, name: str, wrong: list[str]) -> float | None:
    if not text:
        return None
    if re.fullmatch(r"\d{1,17}(\.\d{1,3})?", text) and float(text) / 1e3 < _LAST_MOMENT:
        return float(text) / 1e3
    wrong.append(f"{name}={text[:40]!r} in the address is not a moment in Unix milliseconds")
    return None


def parameters_of(view: View) -> dict[str, str]:
    """Return the parameters of the address that asks for a view."""
    found = {name: str(getattr(view, field)) for name, field in _TEXTS.items() if getattr(view, field)}
    if view.rank is not None:
        found["rank"] = str(view.rank)
    for name, moment in (("from", view.start), ("to", view.end)):
        if moment is not None:
            found[name] = f"{moment * 1e3:.3f}".rstrip("0").rstrip(".")
    return found


def address(page: str, view: View) -> str:
    """Return the address of a view, from the root of the explorer."""
    query = urllib.parse.urlencode(parameters_of(view))
    return f"/{page}{'?' if query else ''}{query}"
