"""Tests of the trace engine keep their columns to themselves, and those that ask for it run with and without the native scanner."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tachoscope_analyzers.trace.reading.json_brackets import MODULE
from tachoscope_core.native import SWITCH, native


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module", params=["native", "python"])
def scanner(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests of a module twice: with the native scanner, where there is one, and without."""
    if request.param == "native" and native(MODULE).module is None:
        pytest.skip(native(MODULE).reason)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setenv(SWITCH, "0")
        native.cache_clear()
        yield
    native.cache_clear()
