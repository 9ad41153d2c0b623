"""Tables of numbers and names that are shipped with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tachoscope_core import yaml_text

_PACKAGE = Path(__file__).parents[1]


def shipped(name: str) -> Any:
    """Return what a YAML file of this package holds, such as `trace/analyses/devices.yaml`."""
    return yaml_text.load_shipped((_PACKAGE / name).read_bytes())
