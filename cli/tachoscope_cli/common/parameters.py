"""Values of options that are used as they are written.

Newer typer converts every value by pydantic, absent ones and texts too. That takes a tenth of a second to import, which is most of
what a short command takes. Values that do need a conversion, and wrong ones, still get it, with typer's messages.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

_LEFT_TO_TYPER = object()


def without_conversions(command: Any, context: Any) -> None:
    """Let the parameters of a command, `--help` too, take values that need no conversion as they are."""
    for parameter in command.get_params(context):
        if hasattr(parameter, "get_runtime_param") and not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_processed, parameter, parameter.process_value)


def _processed(parameter: Any, by_typer: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    several = parameter.multiple or parameter.nargs == -1
    found = _unchanged(parameter.type_descriptor.annotation, value, several=several)
    missing = found is None or found == () or found == []
    if found is _LEFT_TO_TYPER or (missing and parameter.required):
        return by_typer(context, value)
    return found if parameter.callback is None else parameter.callback(context, parameter, found)


def _unchanged(kind: Any, value: Any, *, several: bool) -> Any:
    """Return what typer makes of a value, where that is known without a conversion."""
    if value is None:
        return () if several else None
    if several:
        texts = kind == list[str] and isinstance(value, list | tuple) and all(type(one) is str for one in value)
        return list(value) if texts else _LEFT_TO_TYPER
    if type(value) is kind and kind in {str, bool, int, float}:
        return value
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((one for one in kind if value in (one, one.value)), _LEFT_TO_TYPER)
    return _LEFT_TO_TYPER
