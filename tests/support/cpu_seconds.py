"""Which tests and fixtures take the processors.

    PYTHONPATH=tests/support python -m pytest -p cpu_seconds --cpu-seconds FILE tests/core

Each line of the file is a test or a fixture with its processor seconds, of pytest itself and of the processes that ended meanwhile.
A test's seconds include those of the fixtures that were made for it.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import forked

_OPTION = "--cpu-seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, required=True, help="file to which the processor seconds of tests and fixtures are added")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Seconds(config.getoption(_OPTION)))


class _Seconds:
    def __init__(self, path: Path) -> None:
        self.path = path

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self._written("test", item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
        with self._written(f"{fixturedef.scope} fixture", f"{fixturedef.baseid}::{fixturedef.argname}"):
            return (yield)

    @contextmanager
    def _written(self, kind: str, name: str) -> Generator[None]:
        own, children, wall = *_used(), time.monotonic()
        try:
            yield
        finally:
            own_after, children_after = _used()
            seconds = {"own": own_after - own, "children": children_after - children, "wall": time.monotonic() - wall}
            line = {"kind": kind, "name": name} | {key: round(value, 3) for key, value in seconds.items()}
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _used() -> tuple[float, float]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime + forked.cpu_seconds()
