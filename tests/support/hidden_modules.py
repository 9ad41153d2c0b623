"""Runs commands of tachoscope, or imports its packages, as if some modules were not installed.

    python hidden_modules.py pandas,pyarrow commands < [["store", "ls"], ...]
    python hidden_modules.py pandas,pyarrow imports < ["tachoscope_core", ...]

Prints a JSON list: for each command its exit code and what it wrote to stderr; for each package the errors of its modules' imports.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from typing import Any


class Hiding:
    """A finder of modules that finds nothing of some names."""

    def __init__(self, finder: Any, names: Iterable[str]) -> None:
        self._finder, self._names = finder, frozenset(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self._names else self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def run(words: list[str]) -> tuple[int, str]:
    from tachoscope_cli.main import main

    err = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
        except Exception:
            code = 1
            traceback.print_exc()
    return code if isinstance(code, int) else int(code is not None), err.getvalue()


def import_all(package: str) -> list[str]:
    errors = []
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            errors.append(f"{found.name}: {error}")
    return errors


if __name__ == "__main__":
    sys.meta_path[:] = [Hiding(finder, sys.argv[1].split(",")) for finder in sys.meta_path]
    do: Any = {"commands": run, "imports": import_all}[sys.argv[2]]
    sys.__stdout__.write(json.dumps([do(one) for one in json.load(sys.stdin)]))
