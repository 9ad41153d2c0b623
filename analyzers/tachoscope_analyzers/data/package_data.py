"""Tables of numbers and names that are shipped with the package."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from tachoscope_core import yaml_text


def shipped(name: str) -> Any:
    """Return what a YAML file of this package holds, such as `trace/analyses/devices.yaml`."""
    return yaml_text.load((files("tachoscope_analyzers") / name).read_bytes())
