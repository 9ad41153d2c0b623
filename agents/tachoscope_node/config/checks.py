"""The places that a configuration names: whether they can be meant as written, and who else may reach them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.allowed_hosts import is_loopback
from tachoscope_core.storage.store import check_url
from tachoscope_service.http.page_url import page_fault

if TYPE_CHECKING:
    from tachoscope_node.config.settings import Config, Gpu

_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"


def faults(config: Config) -> list[str]:
    """Return a line for each setting that cannot be valid, with what to write instead."""
    paths = {key: getattr(config, key) for key in ("spool", "state", "web_config", "proc", "sys")}
    if "://" not in config.store:
        paths["store"] = config.store
    found = [
        f"{key}: {path!r} is a relative path: give the absolute path"
        for key, path in paths.items()
        if path and not Path(path).is_absolute()
    ]
    try:
        check_url(config.store_url)
    except TachoscopeError as error:
        found.append(f"store: {error}")
    checkpoints = config.checkpoints
    for key, folders in (("roots", checkpoints.roots), ("paths", [*checkpoints.paths, *checkpoints.paths.values()])):
        found += [f"checkpoints.{key}: {folder!r} is a relative path" for folder in folders if not Path(folder).is_absolute()]
    named = [("directory", config.profiles.directory), *(("sockets", path) for path in config.profiles.sockets)]
    found += [f"profiles.{key}: {path!r} is a relative path" for key, path in named if path and not Path(path).is_absolute()]
    if config.preemption.url and ((fault := page_fault(config.preemption.url)) or not config.preemption.url.startswith("http://")):
        found.append(f"preemption.url: {config.preemption.url!r} {fault or 'is not an http:// URL, as metadata services have'}")
    return found + [f"gpu.{fault}" for fault in _gpu_faults(config.gpu)]


def _gpu_faults(gpu: Gpu) -> list[str]:
    """Sockets and logs need not be there yet: the kubelet may start later, and its collector says so itself."""
    paths = {"kernel_log": gpu.kernel_log, "pod_resources": gpu.pod_resources}
    found = [f"{key}: {path!r} is a relative path: write it from / on" for key, path in paths.items() if path and path[0] != "/"]
    if "@" in gpu.dcgm_url.partition("://")[2].partition("/")[0]:
        found.append("dcgm_url: (not shown): has a user in it, which is not supported: name a page that needs no password")
    elif gpu.dcgm_url and (fault := page_fault(gpu.dcgm_url)):
        found.append(f"dcgm_url: {gpu.dcgm_url!r} {fault}")
    return found


def in_the_way(config: Config) -> list[str]:
    """Return places that are occupied by something else now. Not checked at a start: a store may be away for a while."""
    directories = {"spool": config.spool_path, "state": config.state_path}
    if "://" not in config.store_url:
        directories["store"] = Path(config.store_url)
    found = []
    for key, directory in directories.items():
        there = next(path for path in (directory, *directory.parents) if os.path.exists(path))
        if not os.path.isdir(there):
            found.append(f"{key}: {str(directory)!r} cannot be a directory: {there} is a file")
    return found + [f"gpu.{fault}" for fault in _no_source(config.gpu)]


def _no_source(gpu: Gpu) -> list[str]:
    """Return paths of GPU settings that can never be what they should be."""
    found = []
    if os.path.isdir(gpu.kernel_log):
        found.append(f"kernel_log: {gpu.kernel_log!r} is a directory: name the kernel log, /dev/kmsg")
    if os.path.exists(gpu.pod_resources) and not stat.S_ISSOCK(os.stat(gpu.pod_resources).st_mode):
        found.append(f"pod_resources: {gpu.pod_resources!r} is not a socket: name the kubelet's, {_SOCKET} unless it was moved")
    return found


def warnings(config: Config) -> list[str]:
    """Return warnings about settings that are valid but perhaps not intended."""
    found = []
    if not config.web_config and not is_loopback(config.address):
        where = f"address {config.address!r} is not loopback and no web_config is set"
        found.append(
            f"{where}: anyone who can reach port {config.port} can read the metrics. See docs/agent/agent.md for TLS and passwords"
        )
    if config.gpu.dcgm_url and config.gpu.dcgm_names:
        found.append(
            f"gpu.dcgm_names beside the dcgm-exporter {config.gpu.dcgm_url}: where Prometheus scrapes that one too, each GPU is "
            "there twice under the same names; see docs/agent/dcgm.md"
        )
    if os.path.isfile(config.gpu.kernel_log):
        found.append(
            f"gpu.kernel_log {config.gpu.kernel_log!r} is a file: only lines in the format of /dev/kmsg count, which no syslog "
            "has, and a file that is rotated or cut short is not opened again; name /dev/kmsg"
        )
    return found
