"""Tests of made traces keep their columns to themselves; those that ask for it run with and without the native scanner."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from recorded import ALL
from tachoscope_analyzers.trace.reading.json_brackets import MODULE
from tachoscope_core.native import SWITCH, native


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Where columns are kept: of recorded traces, which many tests analyze, for all tests but those of reading."""
    call = getattr(request.node, "callspec", None)
    is_recorded = call is not None and call.params.get("name") in ALL and request.path.parent.name != "reading"
    folder = (tmp_path_factory.getbasetemp() / "recorded" if is_recorded else tmp_path) / "cache"
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module", params=["native", "python"])
def scanner(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the tests of a module twice, with the native scanner, where there is one, and without, and says which."""
    if request.param == "native" and native(MODULE).module is None:
        pytest.skip(native(MODULE).reason)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setenv(SWITCH, "0")
        native.cache_clear()
        yield request.param
    native.cache_clear()
