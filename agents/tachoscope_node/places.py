"""The places that a configuration names: whether they can be meant as written, and who else may reach them."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.store import check_url

if TYPE_CHECKING:
    from tachoscope_node.config import Config


def faults(config: Config) -> list[str]:
    """Return what cannot be meant as it is written."""
    paths = {key: getattr(config, key) for key in ("spool", "state", "web_config", "proc", "sys")}
    if "://" not in config.store:
        paths["store"] = config.store
    found = [
        f"{key}: {path!r} is a relative path: write it from / on, whoever starts the agent and wherever"
        for key, path in paths.items()
        if path and not Path(path).is_absolute()
    ]
    try:
        check_url(config.store_url)
    except TachoscopeError as error:
        found.append(f"store: {error}")
    return found


def in_the_way(config: Config) -> list[str]:
    """Return the places where a file stands in the way now. No fault at a start: a store may be away for a while."""
    directories = {"spool": config.spool_path, "state": config.state_path}
    if "://" not in config.store_url:
        directories["store"] = Path(config.store_url)
    found = []
    for key, directory in directories.items():
        there = next(path for path in (directory, *directory.parents) if os.path.exists(path))
        if not os.path.isdir(there):
            found.append(f"{key}: {str(directory)!r} cannot be a directory: {there} is a file")
    return found


def warnings(config: Config) -> list[str]:
    """Return what is allowed and may not be meant."""
    found = []
    if not config.web_config and not _is_loopback(config.address):
        where = f"address {config.address!r} is not loopback and there is no web_config"
        found.append(f"{where}: whoever reaches port {config.port} can read the metrics; see docs/agent.md for TLS and passwords")
    if config.gpu.dcgm_url and config.gpu.dcgm_names:
        found.append(
            f"gpu.dcgm_names beside the dcgm-exporter {config.gpu.dcgm_url}: where Prometheus scrapes that one too, each GPU is "
            "there twice under the same names; see docs/dcgm.md"
        )
    return found


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
