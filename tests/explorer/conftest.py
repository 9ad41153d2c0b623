"""What the explorer keeps lies in a folder of the test session, not in the user's home."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache

import pytest
from streamlit.components.v2 import manifest_scanner

# The runner of Streamlit's tests looks through all installed packages for components each time it opens a page: 0.5 s of 0.6.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


@pytest.fixture(autouse=True)
def own_main() -> Iterator[None]:
    """Streamlit leaves its script as the module `__main__`, which a process that is begun again would run."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACHOSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
