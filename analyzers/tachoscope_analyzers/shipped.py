"""Tables of numbers and names that are shipped with the package."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast where PyYAML was built with libyaml."""


def shipped(name: str) -> Any:
    """Return what a YAML file of this package holds, such as `trace/devices.yaml`."""
    return yaml.load((files("tachoscope_analyzers") / name).read_bytes(), Loader=_LOADER)  # noqa: S506 - both are safe loaders
