"""The instances into which MIG divides a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tachoscope_node.gpu.nvml.driver import UNSUPPORTED, code_of, text
from tachoscope_node.gpu.reading import Gpu


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG device: a compute instance in a GPU instance, which most often has just one.

    Attributes:
        gpu_instance: id of its GPU instance, by which GPM knows it.
    """

    gpu: Gpu
    handle: Any
    gpu_instance: int


def is_on(nvml: Any, handle: Any) -> bool:
    """Return whether MIG is on. Raises NVMLError for all but a GPU without MIG."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError as error:
        if code_of(error) in UNSUPPORTED:
            return False
        raise


def instances(nvml: Any, handle: Any, parent: Gpu) -> tuple[Instance, ...]:
    """Return the instances of a GPU in which MIG is on. Raises NVMLError."""
    found = []
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(_instance(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, position), parent))
        except nvml.NVMLError as error:  # NOT_FOUND: positions need not follow each other
            if code_of(error) not in UNSUPPORTED:
                raise
    return tuple(found)


def _instance(nvml: Any, handle: Any, parent: Gpu) -> Instance:
    number = nvml.nvmlDeviceGetGpuInstanceId(handle)
    gpu = replace(
        parent, uuid=nvml.nvmlDeviceGetUUID(handle), mig=str(number), parent_uuid=parent.uuid, mig_profile=_profile(nvml, handle)
    )
    return Instance(gpu, handle, number)


def _profile(nvml: Any, handle: Any) -> str:
    """Return the profile, such as 1g.10gb: the end of the instance's name, or made from its size where the name has none."""
    _, found, profile = text(nvml.nvmlDeviceGetName(handle)).partition(" MIG ")
    if found:
        return profile
    try:
        size = nvml.nvmlDeviceGetAttributes_v2(handle)
    except nvml.NVMLError:
        return ""
    return f"{size.gpuInstanceSliceCount}g.{-(-size.memorySizeMB // 1024)}gb"
