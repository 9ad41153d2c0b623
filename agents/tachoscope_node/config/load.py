"""The agent's configuration: one YAML file, checked once, with all its faults at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import PlainDocument
from tachoscope_node.config import checks
from tachoscope_node.config import nccl as nccl_settings
from tachoscope_node.config.device_filter import DEFAULT_FILTERS, DeviceFilter
from tachoscope_node.config.inference_servers import faults as server_faults
from tachoscope_node.config.settings import Config, Filter, Limits
from tachoscope_service.metrics.otlp.push import faults as otlp_faults

_SECRET = {"headers"}
_T = TypeVar("_T", bound=msgspec.Struct)
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


RANGES: Mapping[str, tuple[float, float]] = {
    "tick_seconds": (0.05, 60),
    "retention_seconds": (0, 86400),
    "sample_seconds": (0, 3600),
    "scrape_seconds": (1, 600),
    "spool_retention_seconds": (60, 365 * 86400),
    "stop_seconds": (0, 3600),
    "port": (0, 65535),
    "flush.seconds": (0, 86400),
    "flush.bytes": (1 << 16, 1 << 30),
    "gpu.expected": (0, 1024),
    "gpu.interval_seconds": (0.2, 60),
    "checkpoints.bytes_per_second": (0, 1 << 40),
    "checkpoints.max_bytes": (0, 1 << 50),
    "checkpoints.verify_again_seconds": (60, 365 * 86400),
    "preemption.interval_seconds": (1, 60),
    **{f"nccl.{name}": limits for name, limits in nccl_settings.RANGES.items()},
    "profiles.interval_seconds": (1, 30 * 86400),
    "profiles.most_seconds": (0.5, 600),
    "profiles.trace_bytes": (1 << 16, 1 << 40),
    "profiles.job_bytes": (0, 1 << 50),
    **{f"limits.{name}": (1, 1 << 40) for name in Limits.__struct_fields__},
}
"""By key: the least and the most that a number may be."""


def load(path: Path | None, *, look: bool = False, **changes: object) -> Config:
    """Read and check the file, or take the defaults; `changes` (of the command line) win.

    Args:
        changes: values by key, also by one such as gpu.dcgm_names; None changes nothing.
        look: also look whether the places can be directories, as they are now.

    Raises:
        TachoscopeError: with every fault of the file, each with its key, value and the way out.
    """
    where = str(path) if path else "the command line"
    document = located_yaml.read_plain(path, secret=True) if path else PlainDocument(Path(), None, {})
    data = _keys_and_values(document)
    for key, value in changes.items():
        if value is not None:
            _change(data, key, value)
    faults: list[str] = []
    config = _convert(Config, data, "", faults)
    faults += [*_out_of_range(config), *checks.faults(config), *(checks.in_the_way(config) if look else [])]
    if faults:
        raise TachoscopeError(f"{where}: {len(faults)} to fix:" + "".join(f"\n  {_placed(fault, document)}" for fault in faults))
    return config


def _placed(fault: str, document: PlainDocument) -> str:
    """Return a fault, which begins with its key, with the line of that key; what the command line says has none."""
    line = document.line(fault.partition(":")[0])
    return f"line {line}: {fault}" if line else fault


def _change(data: dict[str, Any], key: str, value: object) -> None:
    section, _, name = key.rpartition(".")
    if not section:
        data[name] = value
    elif isinstance(part := _or_empty(data.get(section)), dict):  # else it is a fault, and is named as one
        data[section] = {**part, name: value}


def _or_empty(section: object) -> object:
    """Return an empty mapping for a section without keys, which YAML reads as null."""
    return {} if section is None else section


def _keys_and_values(document: PlainDocument) -> dict[str, Any]:
    if document.data is None:
        return {}
    if not isinstance(document.data, dict):
        kind = type(document.data).__name__
        raise TachoscopeError(f"{document.path} holds {kind}, not keys and values", fix="see docs/agent/agent.md for an example")
    return {str(key): value for key, value in document.data.items()}


def _convert(kind: type[_T], data: object, prefix: str, faults: list[str]) -> _T:
    """Return `data` as a struct; a field with a fault keeps its default, and the fault is added to the list."""
    if not isinstance(data, dict):
        faults.append(f"{prefix.rstrip('.')}: {type(data).__name__} where a set of keys and values belongs")
        return kind()
    hints = get_type_hints(kind)
    known: dict[str, Any] = {}
    for key, value in data.items():
        hint = hints.get(key)
        if hint is None:
            faults.append(f"{prefix}{key}: no such key; there are {', '.join(hints)}")
            continue
        nested = next((part for part in (hint, *get_args(hint)) if _is_struct(part)), None)
        if nested is not None and value is None:  # all keys of the section are left out, or commented out
            continue
        if nested is not None and get_origin(hint) is list and isinstance(value, list):
            known[key] = [_convert(nested, item, f"{prefix}{key}[{number}].", faults) for number, item in enumerate(value)]
            continue
        if nested is not None and get_origin(hint) not in {dict, list}:
            known[key] = _convert(nested, value, f"{prefix}{key}.", faults)
            continue
        try:
            known[key] = msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            shown = "(not shown)" if key in _SECRET else repr(value)
            faults.append(f"{prefix}{key}: {shown}: {_named(hint) or error}")
    return kind(**known)


def _named(hint: object) -> str:
    """Return which texts a key takes, where it takes none but a few."""
    texts = [text for part in (hint, *get_args(hint)) for text in get_args(part) if isinstance(text, str)]
    return f"must be one of {', '.join(texts)}" if texts else ""


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _out_of_range(config: Config) -> list[str]:
    values = {name: attrgetter(name)(config) for name in RANGES}
    faults = [
        f"{name}: {values[name]} is not between {low} and {high}"
        for name, (low, high) in RANGES.items()
        if not low <= values[name] <= high
    ]
    roots = {"proc": config.proc, "sys": config.sys}
    faults += [f"{name}: {root!r} is not a directory" for name, root in roots.items() if not Path(root).is_dir()]
    if config.web_config and not Path(config.web_config).is_file():
        faults.append(f"web_config: {config.web_config} does not exist")
    if not _NODE.fullmatch(config.node_name):
        faults.append(f"node: {config.node_name!r} is not a host name: set node: or $NODE_NAME")
    for collector, devices in config.devices.items():
        faults += _filter_faults(collector, devices)
    if config.preemption.provider is True:
        faults.append("preemption.provider: True: must be one of off, aws, gcp, azure")
    faults += server_faults(config.servers)
    faults += [f"nccl.{fault}" for fault in nccl_settings.faults(config.nccl)]
    if config.otlp is not None:
        faults += [f"otlp.{fault}" for fault in otlp_faults(config.otlp)]
    return faults


def _filter_faults(collector: str, devices: Filter) -> list[str]:
    if collector not in DEFAULT_FILTERS:
        return [f"devices.{collector}: no collector with devices; there are {', '.join(DEFAULT_FILTERS)}"]
    try:
        DeviceFilter(devices.include, devices.exclude)
    except TachoscopeError as error:
        return [f"devices.{collector}: {error}"]
    return []
