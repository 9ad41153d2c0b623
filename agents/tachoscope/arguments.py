"""Numbers and texts as a job gives them, such as of numpy or torch, as a record can hold them; nothing here raises."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from tachoscope import guard
from tachoscope_core.records.records import MAX_COUNT, MAX_SECONDS, MAX_TEXT

N = TypeVar("N", int, float)
_said: set[str] = set()


def as_integer(value: Any, name: str, *, default: int = 0, least: int = 0) -> int:
    """Return a whole number given by the job; `default`, with one line on stderr, if it is not an integer of at least `least`."""
    if type(value) is int and least <= value <= MAX_COUNT:
        return value
    number = _converted(value, name, int, least, MAX_COUNT)
    return default if number is None else number


def as_number(value: Any, name: str) -> float:
    """Return a non-negative number given by the job; 0, with one line on stderr, if it is not one."""
    if type(value) is float and 0 <= value <= MAX_SECONDS:
        return value
    number = _converted(value, name, float, 0, MAX_SECONDS)
    return 0.0 if number is None else number


def _converted(value: Any, name: str, convert: Callable[[Any], N], least: float, most: float) -> N | None:
    """Return the value as a number within the bounds; None, with one line on stderr, if it is not one."""
    try:
        _refuse_device(value)
        number = convert(value)
        if least <= number <= most:  # false for NaN
            return number
        why = f"not between {least:g} and {most:g}"
    except Exception as error:
        _raise_if_of_the_job(error)
        why = str(error)
    not_recorded(name, value, why)
    return None


def text(value: Any) -> str:
    """Return a text given by the job as valid Unicode of at most `MAX_TEXT` characters."""
    if type(value) is str and value.isascii() and len(value) <= MAX_TEXT:
        return value
    try:
        return str(value).encode(errors="replace").decode()[:MAX_TEXT]
    except Exception as error:
        _raise_if_of_the_job(error)
        return ""


class ArgumentGuard:
    """A context in which an argument of the job's is turned into what a record holds: what raises is one line that names it."""

    __slots__ = ("_name", "_value")

    def __init__(self, value: Any, name: str) -> None:
        self._value, self._name = value, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None or guard.is_of_the_job(error):
            return False
        not_recorded(self._name, self._value, f"{type(error).__name__}: {error}")
        return True


def _refuse_device(value: Any) -> None:
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None) or getattr(device, "platform", "cpu")
    if kind not in {"cpu", "meta"}:
        raise ValueError(f"it is on {kind}, and reading it would wait for the device: give a number of the host")


def _raise_if_of_the_job(error: Exception) -> None:
    if guard.is_of_the_job(error):
        raise error


def not_recorded(name: str, value: Any, why: str) -> None:
    """Write one line on stderr, once for each argument of a function."""
    if name not in _said:
        _said.add(name)
        guard.print_line(f"{name} of type {type(value).__name__} is not recorded: {why}")
