"""Values as Grafana writes them: three digits that count, scaled to the unit that reads best.

The identifiers of units are Grafana's: https://grafana.com/docs/grafana/latest/panels-visualizations/configure-standard-options/
Those that it does not know it writes behind the number, as here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

MOST_DIGITS = 12
_SI = ("", "k", "M", "G", "T", "P", "E")
_IEC = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_COUNT = ("", "K", "M", "B", "T")
_SHORT = ("", " K", " Mil", " Bil", " Tri", " Quadr")
_TIMES = ((1e-6, 1e-9, " ns"), (1e-3, 1e-6, " µs"), (1.0, 1e-3, " ms"), (60.0, 1.0, " s"), (3600.0, 60.0, " min"))
_LONG_TIMES = ((86_400.0, 3600.0, " hour"), (604_800.0, 86_400.0, " day"), (31_536_000.0, 604_800.0, " week"))
_YEAR_SECONDS = 31_556_900.0
_AGO = ((60.0, 1.0, "second"), (3600.0, 60.0, "minute"), (86_400.0, 3600.0, "hour"), (2_592_000.0, 86_400.0, "day"))
_AGO_LONG = ((31_536_000.0, 2_592_000.0, "month"), (math.inf, 31_536_000.0, "year"))

Write = Callable[[float, int | None], str]
_SEEN_FROM: ContextVar[float | None] = ContextVar("seen_from", default=None)


@contextmanager
def seen_from(moment: float) -> Iterator[None]:
    """Tell for the length of the block how long ago a time is as of a moment, in Unix seconds; else it is as of now."""
    before = _SEEN_FROM.set(moment)
    try:
        yield
    finally:
        _SEEN_FROM.reset(before)


def text(value: float, unit: str = "none", decimals: int | None = None) -> str:
    """Return a value with its unit. decimals: as many as three digits need, without."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    write = _UNITS.get(unit)
    return write(value, decimals) if write else f"{digits(value, decimals)} {unit}"


def digits(value: float, decimals: int | None = None) -> str:
    """Return a number without a unit; a whole one without decimals."""
    if decimals is None:
        decimals = 0 if value == int(value) else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, MOST_DIGITS)}f}"


def is_binary(unit: str) -> bool:
    """Return whether the unit counts in powers of 1024."""
    return unit in {"bytes", "bits", "binBps", "binbps"}


def _scaled(factor: float, suffixes: Sequence[str]) -> Write:
    def write(value: float, decimals: int | None) -> str:
        step = 0
        while abs(value) >= factor and step + 1 < len(suffixes):
            value, step = value / factor, step + 1
        return f"{digits(value, decimals)}{suffixes[step]}"

    return write


def _after(unit: str, prefixes: Sequence[str], factor: float = 1000.0) -> Write:
    return _scaled(factor, [f" {prefix}{unit}" for prefix in prefixes])


def _count(unit: str) -> Write:
    return _scaled(1000.0, [f"{prefix} {unit}" for prefix in _COUNT])


def _fixed(unit: str, factor: float = 1.0) -> Write:
    return lambda value, decimals: f"{digits(value * factor, decimals)}{unit}"


def _seconds(value: float, decimals: int | None) -> str:
    if value == 0.0:
        return "0 s"
    for below, factor, unit in (*_TIMES, *_LONG_TIMES):
        if abs(value) < below:
            return f"{digits(value / factor, decimals)}{unit}"
    return f"{digits(value / _YEAR_SECONDS, decimals)} year"


def _from_now(value: float, _: int | None) -> str:
    """Return how long ago a time is, in milliseconds since 1970."""
    moment = _SEEN_FROM.get()
    seconds = (time.time() if moment is None else moment) - value / 1000.0
    for below, factor, unit in (*_AGO, *_AGO_LONG):
        if abs(seconds) < below:
            number = max(1, round(abs(seconds) / factor))
            words = f"{number} {unit}{'' if number == 1 else 's'}"
            return f"{words} ago" if seconds >= 0.0 else f"in {words}"
    raise AssertionError("the last unit has no bound")


def _at(value: float, _: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value / 1000.0))


def _dollars(value: float, decimals: int | None) -> str:
    return f"{'-' if value < 0.0 else ''}${_scaled(1000.0, _COUNT)(abs(value), decimals)}"


_UNITS: Mapping[str, Write] = {
    "none": lambda value, decimals: digits(value, decimals),
    "short": _scaled(1000.0, _SHORT),
    "percent": _fixed("%"),
    "percentunit": _fixed("%", 100.0),
    "s": _seconds,
    "ms": lambda value, decimals: _seconds(value / 1e3, decimals),
    "bytes": _after("B", _IEC, 1024.0),
    "decbytes": _after("B", _SI),
    "bits": _after("b", _IEC, 1024.0),
    "binBps": _after("B/s", _IEC, 1024.0),
    "Bps": _after("B/s", _SI),
    "binbps": _after("b/s", _IEC, 1024.0),
    "bps": _after("b/s", _SI),
    "pps": _after("p/s", _SI),
    "hertz": _after("Hz", _SI),
    "watt": _after("W", _SI),
    "watth": _after("Wh", _SI),
    "kwatth": lambda value, decimals: _after("Wh", _SI)(value * 1e3, decimals),
    "joule": _after("J", _SI),
    "celsius": _fixed(" °C"),
    "ops": _count("ops/s"),
    "reqps": _count("req/s"),
    "rps": _count("rd/s"),
    "wps": _count("wr/s"),
    "cps": _count("c/s"),
    "currencyUSD": _dollars,
    "dateTimeFromNow": _from_now,
    "dateTimeAsIso": _at,
    "bool": lambda value, _: "True" if value else "False",
    "bool_yes_no": lambda value, _: "Yes" if value else "No",
    "bool_on_off": lambda value, _: "On" if value else "Off",
}
