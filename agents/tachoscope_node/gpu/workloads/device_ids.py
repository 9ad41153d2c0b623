"""The names under which device plugins and drivers of Kubernetes hand out GPUs, and which GPU each means.

| name | of |
|---|---|
| `GPU-<uuid>`, `GPU-<uuid>::3` | NVIDIA's device plugin; `::3` is a replica of a shared GPU |
| `MIG-<uuid>`, `MIG-GPU-<uuid>/<gi>/<ci>` | a MIG instance, the second by drivers before R470 |
| `nvidia0`, `nvidia0/vgpu1`, `nvidia0/gi1`, `nvidia0/gi1/vgpu0` | GKE's device plugin, by the minor number of /dev/nvidia0 |
| `gpu-0`, `gpu-0-mig-1g10gb-19-4` | NVIDIA's DRA driver: minor number; profile, its id and place |

https://github.com/NVIDIA/k8s-device-plugin https://github.com/GoogleCloudPlatform/container-engine-accelerators
https://github.com/NVIDIA/k8s-dra-driver-gpu/blob/v25.12.0/cmd/gpu-kubelet-plugin/mig.go
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from tachoscope_node.common.kernel_files import read
from tachoscope_node.gpu.pci_address import pci_address
from tachoscope_node.gpu.reading import Gpu

DRA_DRIVER = "gpu.nvidia.com"
Key = tuple[str, ...]
_HEX = r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_REPLICA = r"(?:::\d+)?"
_UUID_FORMS = {
    "uuid": re.compile(rf"(?:gpu|mig)-{_HEX}{_REPLICA}"),
    "instance": re.compile(rf"mig-gpu-{_HEX}/(\d+)/\d+{_REPLICA}"),
}
_MINOR_FORMS = {
    "minor": re.compile(r"(?:nvidia|gpu-)(\d+)(?:/vgpu\d+)?"),
    "minor_instance": re.compile(r"nvidia(\d+)/gi(\d+)(?:/vgpu\d+)?"),
    "minor_profile": re.compile(r"gpu-(\d+)-mig-(.+)-\d+-\d+"),
}
_BARE = re.compile(_HEX)
_MINOR = re.compile(rb"^Device Minor:\s*(\d+)", re.MULTILINE)


@lru_cache(1024)
def key(name: str) -> Key | None:
    """Return what a name means, the same for all ways to write it, or None for a name of another form."""
    name = name.lower()
    for form, pattern in (_UUID_FORMS | _MINOR_FORMS).items():
        if found := pattern.fullmatch(name):
            return form, *found.groups()
    return ("uuid", name) if _BARE.fullmatch(name) else None  # as CUDA writes it


def is_uuid(name: str) -> bool:
    """Return whether a name is one that only a GPU or MIG instance has."""
    return any(pattern.fullmatch(name.lower()) for pattern in _UUID_FORMS.values())


@lru_cache(1024)
def uuid_keys(gpu: Gpu) -> frozenset[Key]:
    """Return what names by UUID of this GPU mean."""
    own = {found for found in (key(gpu.uuid),) if found}
    parent = key(gpu.parent_uuid) if gpu.mig else None
    return frozenset(own | ({("instance", parent[1], gpu.mig)} if parent else set()))


class Devices:
    """The GPUs of this node by all names that they may be given out under.

    Args:
        minors: minor number by PCI address (of `pci_address`); asked once, when a name with a minor number is looked up.
    """

    def __init__(self, gpus: Sequence[Gpu], minors: Callable[[], Mapping[str, str]]) -> None:
        self._gpus = gpus
        self._minors = minors
        self._by_uuid = _unambiguous((found, gpu) for gpu in gpus for found in uuid_keys(gpu))
        self._by_minor: dict[Key, Gpu] | None = None

    def find(self, names: Iterable[str]) -> Gpu | None:
        """Return the GPU that goes by one of these names; None where there is none, or where it could be one of several."""
        for found in filter(None, map(key, names)):
            gpu = self._by_uuid.get(found) if found[0] in _UUID_FORMS else self._of_minor(found)
            if gpu is not None:
                return gpu
        return None

    def _of_minor(self, wanted: Key) -> Gpu | None:
        if self._by_minor is None:
            minors = self._minors()
            minor_of = {gpu.uuid: minors.get(pci_address(gpu.pci_bus_id)) for gpu in self._gpus if not gpu.mig}
            self._by_minor = _unambiguous(
                (found, gpu)
                for gpu in self._gpus
                if (minor := minor_of.get(gpu.parent_uuid or gpu.uuid)) is not None
                for found in _minor_keys(gpu, minor)
            )
        return self._by_minor.get(wanted)


def _minor_keys(gpu: Gpu, minor: str) -> tuple[Key, ...]:
    if not gpu.mig:
        return (("minor", minor),)
    # The DRA driver writes 1g.10gb+me as 1g10gb-me; which of several instances of one profile is meant, nobody here can tell.
    profile = re.sub(r"[^a-z0-9]", "-", gpu.mig_profile.lower().replace(".", ""))
    return ("minor_instance", minor, gpu.mig), ("minor_profile", minor, profile)


def _unambiguous(pairs: Iterable[tuple[Key, Gpu]]) -> dict[Key, Gpu]:
    found: dict[Key, Gpu | None] = {}
    for name, gpu in pairs:
        found[name] = None if name in found else gpu
    return {name: gpu for name, gpu in found.items() if gpu is not None}


def minors(proc: str) -> dict[str, str]:
    """Return the minor number of each GPU by PCI address, as the kernel driver tells it.

    https://github.com/NVIDIA/open-gpu-kernel-modules/blob/570.144/kernel-open/nvidia/nv-procfs.c
    """
    folder = f"{proc}/driver/nvidia/gpus"
    found = {}
    for address in os.listdir(folder) if os.path.isdir(folder) else ():
        if match := _MINOR.search(read(f"{folder}/{address}/information")):
            found[pci_address(address)] = match[1].decode()
    return found
