"""Which pod a process is in, and what its id is there, from its files in /proc.

The kubelet names a pod's control group by the pod's UID, in one of two ways (its cgroup drivers; systemd's has `_` for `-`):
`/kubepods/burstable/pod<uid>/<container>`,
`/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope`.
The UID of a static pod is a hash without dashes.
https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/cm/cgroup_manager_linux.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tachoscope_node.common.kernel_files import read

_POD = re.compile(rb"[/-]pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?=[./:\n]|$)")
_NSPID = re.compile(rb"^NSpid:\s*([\d\t ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CgroupPlacement:
    """Where a process runs.

    Attributes:
        pod_uid: empty for a process that is in no pod. inner_pid: its process id as it sees it itself; 0: not known.
    """

    pod_uid: str = ""
    inner_pid: int = 0


def placement_of(pid: int, proc: str = "/proc") -> CgroupPlacement | None:
    """Return where a process of this /proc runs, or None if it has gone or may not be looked at."""
    try:
        groups, status = read(f"{proc}/{pid}/cgroup"), read(f"{proc}/{pid}/status")
    except OSError:
        return None
    pod, nested = _POD.search(groups), _NSPID.search(status)
    pids = nested[1].split() if nested else []
    return CgroupPlacement(_uid(pod[1]) if pod else "", int(pids[-1]) if pids else 0)


def _uid(found: bytes) -> str:
    return found.decode().replace("_", "-")
