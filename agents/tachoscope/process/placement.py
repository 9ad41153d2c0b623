"""On which GPU and in which pod this process runs: what joins its records to what the node agent sees."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

_HEX = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID = re.compile(_HEX)
_POD_GROUP = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?=[./:\n]|$)")
_POD_MOUNT = re.compile(rf"/pods/({_HEX})/(?:etc-hosts|containers/|volumes/)")
POD_UID = "POD_UID"
"""Environment variable of the Downward API's metadata.uid, by its usual name."""


def gpu_uuid(torch: ModuleType, environ: Mapping[str, str]) -> str:
    """Return the UUID of the current CUDA device as the driver writes it (`GPU-…`, `MIG-…`), empty where it cannot be known.

    Without NVML and without a CUDA context of its own. torch writes a UUID without what it is of, knows none before 2.5, and may
    name the whole GPU where the process has a MIG instance. So what selected a MIG instance is believed first; CUDA uses one
    instance at most, the first that is listed. https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ (CUDA_VISIBLE_DEVICES)
    """
    index = torch.cuda.current_device()
    visible = _listed(environ.get("CUDA_VISIBLE_DEVICES"))
    given = _listed(environ.get("NVIDIA_VISIBLE_DEVICES"))  # by the container runtime
    selected = visible[index] if index < len(visible) else given[0] if not visible and len(given) == 1 else ""
    if selected.startswith("MIG-"):
        return selected
    said = str(getattr(torch.cuda.get_device_properties(index), "uuid", "")).lower()
    said = said.removeprefix("gpu-").removeprefix("mig-")
    if _UUID.fullmatch(said):
        return f"MIG-{said}" if f"MIG-{said}" in {*visible, *given} else f"GPU-{said}"
    return selected if _UUID.fullmatch(selected.removeprefix("GPU-")) else ""


def _listed(variable: str | None) -> list[str]:
    return [device.strip() for device in (variable or "").split(",") if device.strip()]


def pod_uid(environ: Mapping[str, str], proc: str = "/proc") -> str:
    """Return the UID of the Kubernetes pod that this process is in, empty where it is in none or cannot know.

    From `$POD_UID`; else from its control group, which it sees only without a namespace for those of its own; else from the files
    that the kubelet mounts into every container, such as /etc/hosts.
    """
    if _UUID.fullmatch(told := environ.get(POD_UID, "")):
        return told
    for name, pattern in (("cgroup", _POD_GROUP), ("mountinfo", _POD_MOUNT)):
        try:
            found = pattern.search((Path(proc) / "self" / name).read_text(errors="replace"))
        except OSError:
            continue
        if found:
            return found[1].replace("_", "-")
    return ""
