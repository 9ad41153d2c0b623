"""No agent outlives its test, also when the test fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from processes import STARTED


@pytest.fixture(autouse=True)
def no_agent_is_left() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop().process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
