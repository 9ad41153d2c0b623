"""Many values in one test: pytest takes about five milliseconds for a case, whatever is in it, and four processes collect it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have one test try all values, like `pytest.mark.parametrize`, which makes a case of each.

    For quick tests without fixtures that a case changes. All values are tried; the test fails with the errors of all that are
    wrong, each with a note that says which value it was.
    """
    taken = (names,) if isinstance(names, str) else names
    rows = [(value,) if isinstance(names, str) else tuple(value) for value in values]
    assert rows, f"no values of {names}"

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def trying_all(**fixtures: Any) -> None:
            errors = []
            for row in rows:
                given = dict(zip(taken, row, strict=True))
                try:
                    test(**given, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(", ".join(f"{name} = {value!r:.200}" for name, value in given.items()))
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(rows)} values", errors)

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in taken]
        trying_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return trying_all

    return decorated
