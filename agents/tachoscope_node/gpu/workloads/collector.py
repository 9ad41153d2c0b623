"""The collector of workloads: which pod, container and rank has each GPU, and how busy the GPUs of each job are.

It needs no right of the Kubernetes API. For what the kubelet tells, its socket's directory must be mounted, and for what control
groups tell, the agent must see the host's processes; each is left out where it is not there.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tachoscope_core.metrics.gpu import GPU_DEVICES_UNMAPPED, GPU_WORKLOAD, GPU_WORKLOAD_MEMORY, GPUS_HELD, POD_RESOURCES_UP
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.metrics.training import JOB_SM_ACTIVE
from tachoscope_node.collectors.collector import NoDataError, PartialError
from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.workloads import join as workloads
from tachoscope_node.gpu.workloads import pod_resources
from tachoscope_node.gpu.workloads.cgroup_pods import CgroupPlacement, placement_of
from tachoscope_node.gpu.workloads.device_ids import Devices, minors
from tachoscope_node.gpu.workloads.job_sm_activity import JobActivity
from tachoscope_node.gpu.workloads.join import Rank, WorkloadSnapshot
from tachoscope_node.gpu.workloads.pod_resources import ContainerOwner, DeviceAllocation, NoAnswerError
from tachoscope_node.spool.owners import pod_of_directory
from tachoscope_service.metrics.family import Family, Labels

if TYPE_CHECKING:
    from tachoscope_node.jobs.registry import Job

INTERVAL_SECONDS = 10.0
KEEP_SECONDS = 60.0
"""How long the kubelet's last answer holds when it does not answer: no pod begins without it, but pods end."""
STEPPED_SECONDS = 60.0
"""So long after a step's end a rank counts as one that does steps."""
_KINDS = ("device", "claim")


def ranks_with_pods(jobs: Iterable[Job], now: float) -> tuple[Rank, ...]:
    """Return the ranks that run, each with its pod by the spool's path; a record is believed only where the path does not tell.

    Args:
        now: seconds of the host's monotonic clock.
    """
    found = []
    for job in jobs:
        for rank in job.running():
            uid, pod = pod_of_directory(rank.directory)
            stepped = rank.last_end is not None and now - rank.last_end < STEPPED_SECONDS
            found.append(Rank(job.name, str(rank.rank), rank.pid, rank.gpu_uuid, uid or rank.pod_uid, pod, stepped))
    return tuple(found)


class PodsCollector:
    """Workloads of each GPU, and how well the kubelet's word could be used.

    Args:
        readings: the newest of each GPU. ranks: those that run on the node. socket: the kubelet's; empty: not asked.
        log: gets one line when the kubelet stops to answer, and one when it answers again.
    """

    name = "pods"
    metrics: Final[tuple[Metric, ...]] = (
        *(GPU_WORKLOAD, GPU_WORKLOAD_MEMORY, GPUS_HELD, JOB_SM_ACTIVE),
        *(POD_RESOURCES_UP, GPU_DEVICES_UNMAPPED),
    )
    interval_seconds = INTERVAL_SECONDS

    def __init__(
        self,
        readings: Callable[[], Sequence[Reading]],
        ranks: Callable[[], Sequence[Rank]],
        *,
        socket: str = "",
        proc: str = "/proc",
        log: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._readings = readings
        self._ranks = ranks
        self._socket = socket
        self._proc = proc
        self._log = log
        self._clock = clock
        self._grants: tuple[DeviceAllocation, ...] = ()
        self._answered = float("-inf")
        self._fault = ""
        self._activity = JobActivity()

    def collect(self) -> list[Family]:
        readings = self._readings()
        if not readings:
            raise NoDataError
        grants = self._ask() if self._socket else ()
        owners, unmapped = _owners(grants, Devices([reading.gpu for reading in readings], lambda: minors(self._proc)))
        now, ranks = self._clock(), self._ranks()
        who, *others = workloads.families(WorkloadSnapshot(readings, owners, self._placements(readings), ranks))
        found = [who, *others, *self._activity.update(readings, ranks, who, now)]
        if not self._socket:
            if not any(family.points for family in found):
                raise NoDataError  # the kubelet is not asked, and no rank runs on a GPU
            return found
        found += [
            Family(POD_RESOURCES_UP, [((), float(not self._fault))]),
            Family(GPU_DEVICES_UNMAPPED, [((kind,), float(unmapped[kind])) for kind in _KINDS]),
        ]
        if self._fault:
            raise PartialError(self._fault, found)
        return found

    def _ask(self) -> tuple[DeviceAllocation, ...]:
        try:
            self._grants, fault = pod_resources.device_allocations(self._socket), ""
            self._answered = self._clock()
        except NoAnswerError as error:
            fault = str(error)
        if fault and not self._fault:
            self._log(
                f"pod-resources: failed: {fault}; is the kubelet's directory mounted, and does gpu.pod_resources name its socket?"
            )
        if self._fault and not fault:
            self._log("pod-resources: the kubelet answers again")
        self._fault = fault
        if self._clock() - self._answered > KEEP_SECONDS:
            self._grants = ()
        return self._grants

    def _placements(self, readings: Iterable[Reading]) -> dict[int, CgroupPlacement]:
        """Return where the processes run, if <proc> numbers them as the driver does: in the agent's own namespace of process ids.

        https://github.com/NVIDIA/open-gpu-kernel-modules/blob/570.144/kernel-open/nvidia/os-interface.c (os_find_ns_pid)
        """
        try:
            ours = os.readlink(f"{self._proc}/self") == str(os.getpid())
        except OSError:
            ours = False
        if not ours:
            return {}
        pids = {process.pid for reading in readings for process in reading.processes or ()}
        return {pid: found for pid in pids if (found := placement_of(pid, self._proc)) is not None}


def _owners(grants: Iterable[DeviceAllocation], devices: Devices) -> tuple[dict[Labels, list[ContainerOwner]], Counter[str]]:
    """Return the containers of each GPU, and the number of devices that are not a known GPU, by kind."""
    owners: dict[Labels, list[ContainerOwner]] = defaultdict(list)
    unmapped: Counter[str] = Counter()
    for grant in grants:
        gpu = devices.find(grant.names)
        if gpu is None:
            unmapped[grant.kind] += 1
        elif grant.owner not in owners[gpu.labels]:
            owners[gpu.labels].append(grant.owner)
    return owners, unmapped
