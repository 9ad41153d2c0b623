"""Where specs, alerts and the policy lie: in the working directory where it has them, else as they came with the package."""

from __future__ import annotations

from pathlib import Path

from tachoscope_core.errors import TachoscopeError

_PACKAGE = Path(__file__).parents[1]
_PLACES = (Path("alerts"), _PACKAGE, _PACKAGE.parent)
"""The repository's own, or that of a folder laid out like it; the wheel; the source tree of an editable installation."""


def path_of(name: str) -> Path:
    """Return where `slos`, `events`, `recordings.yaml`, `generated` or `policy.yaml` lies.

    Raises:
        TachoscopeError: nowhere.
    """
    for place in _PLACES:
        if (place / name).exists():
            return place / name
    raise TachoscopeError(f"alerts/{name} was not found here or in the tachoscope package", fix="name its path as an option")
