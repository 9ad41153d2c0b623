from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pynvml
import pytest

from fake_nvml import Driver

Loaded = Callable[..., Driver]


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    """Make a driver of a profile and let pynvml use it, initialised."""
    with ExitStack() as stack:

        def load(profile: str = "h100x8", **more: object) -> Driver:
            driver = Driver(tmp_path / profile, profile, **more)  # type: ignore[arg-type]
            stack.enter_context(driver.in_process())
            pynvml.nvmlInit()
            return driver

        yield load


@pytest.fixture
def driver(loaded: Loaded) -> Driver:
    """Eight H100s, initialised."""
    return loaded()
