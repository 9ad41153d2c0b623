"""Who has each GPU: readings, pods and ranks joined. Knows nothing of sockets and files; what is not known stays empty.

A process is a rank's when pod and process id agree: the pod by the process's control group and by the rank's place in the spool,
the process id as the process itself sees it. A rank also has the GPU whose UUID its record names, unless the kubelet gave that GPU
to other pods. A pod's UID, which the kubelet does not tell, gets its name from the rank's place in the spool, or from a GPU that
one pod alone has and on which one UID alone is seen. Nothing else is concluded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tachoscope_core.metrics.gpu import GPU_WORKLOAD, GPU_WORKLOAD_MEMORY, GPUS_HELD
from tachoscope_node.gpu.reading import Gpu, GpuProcess, Reading
from tachoscope_node.gpu.workloads.cgroup_pods import CgroupPlacement
from tachoscope_node.gpu.workloads.device_ids import key, uuid_keys
from tachoscope_node.gpu.workloads.pod_resources import ContainerOwner
from tachoscope_node.spool.owners import PodName
from tachoscope_service.metrics.family import Family, Labels, Point

MAX_WORKLOADS = 16
"""Workloads of a GPU with series of their own; the others are one, without labels. NVIDIA's replicas of a GPU are rarely more."""

_UNNAMED: PodName = ("", "")


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank that runs on this node.

    Attributes:
        pid: as the rank sees it itself. gpu_uuid: as its record says. pod_uid: empty where it is not known.
        pod: its namespace and name, each empty where it is not known. stepped: it finished a step not long ago.
    """

    training_job: str
    rank: str
    pid: int = 0
    gpu_uuid: str = ""
    pod_uid: str = ""
    pod: PodName = _UNNAMED
    stepped: bool = False


@dataclass(frozen=True, slots=True, order=True)
class _Workload:
    namespace: str = ""
    pod: str = ""
    container: str = ""
    training_job: str = ""
    rank: str = ""

    @property
    def labels(self) -> Labels:
        return self.namespace, self.pod, self.container, self.training_job, self.rank


_NOBODY = _Workload()
_Memory = list[int | None]
"""Bytes of each of a workload's processes; None where the driver does not tell."""


@dataclass(frozen=True, slots=True)
class WorkloadSnapshot:
    """All that is known at one moment.

    Attributes:
        owners: containers that have a GPU by the kubelet's word, by the GPU's labels. places: of processes, by process id.
    """

    readings: Sequence[Reading]
    owners: Mapping[Labels, Sequence[ContainerOwner]]
    places: Mapping[int, CgroupPlacement]
    ranks: Sequence[Rank]


def families(seen: WorkloadSnapshot) -> list[Family]:
    """Return who has each GPU, how much of its memory, and how many have one. A value that the driver did not tell has no point."""
    join = _Join(seen)
    info: list[Point] = []
    memory: list[Point] = []
    held: set[int] = set()
    for reading in seen.readings:
        for workload, parts in _limited(join.workloads(reading)).items():
            labels = (*reading.gpu.labels, *workload.labels)
            info.append((labels, 1.0))
            held.add(reading.gpu.index)
            known = [part for part in parts if part is not None]
            if parts and len(known) == len(parts):
                memory.append((labels, float(sum(known))))
    count: list[Point] = [((), float(len(held)))] if held else []
    return [Family(GPU_WORKLOAD, info), Family(GPU_WORKLOAD_MEMORY, memory), Family(GPUS_HELD, count)]


class _Join:
    def __init__(self, seen: WorkloadSnapshot) -> None:
        self._seen = seen
        self._by_process: dict[tuple[str, int], list[Rank]] = defaultdict(list)
        for rank in seen.ranks:
            self._by_process[rank.pod_uid, rank.pid].append(rank)
        self._processes = _processes(seen.readings)
        self._on_instances: dict[str, set[Rank]] = defaultdict(set)
        for reading in seen.readings:
            if reading.gpu.mig:
                self._on_instances[reading.gpu.parent_uuid] |= self._running(reading.gpu)
        self._names = self._pod_names()

    def workloads(self, reading: Reading) -> dict[_Workload, _Memory]:
        gpu = reading.gpu
        found: dict[_Workload, _Memory] = defaultdict(list)
        for process in self._processes[gpu.labels]:
            found[self._of_process(process, gpu)].append(process.memory_bytes)
        for rank in self._claiming(gpu):
            found.setdefault(self._workload(gpu, rank.pod_uid, rank), [])
        held = {(workload.namespace, workload.pod, workload.container) for workload in found}
        for owner in self._seen.owners.get(gpu.labels, ()):
            if (owner.namespace, owner.pod, owner.container) not in held:
                found.setdefault(_Workload(owner.namespace, owner.pod, owner.container), [])
        return found

    def _of_process(self, process: GpuProcess, gpu: Gpu) -> _Workload:
        place = self._seen.places.get(process.pid)
        return self._workload(gpu, place.pod_uid if place else "", self._rank_of(process.pid, gpu))

    def _workload(self, gpu: Gpu, pod_uid: str, rank: Rank | None) -> _Workload:
        namespace, pod = self._names.get(pod_uid, _UNNAMED)
        owners = self._seen.owners.get(gpu.labels, ())
        containers = {owner.container for owner in owners if (owner.namespace, owner.pod) == (namespace, pod)}
        container = containers.pop() if len(containers) == 1 else ""
        return _Workload(namespace, pod, container, rank.training_job if rank else "", rank.rank if rank else "")

    def _rank_of(self, pid: int, gpu: Gpu) -> Rank | None:
        """Return the rank of a process, if it is unique."""
        place = self._seen.places.get(pid)
        if place is None or not place.inner_pid or (not place.pod_uid and place.inner_pid != pid):
            return None  # in a container that is not a pod's, other containers have processes of the same id
        ranks = self._by_process.get((place.pod_uid, place.inner_pid), [])
        if len(ranks) > 1:  # containers of one pod count their processes each from 1
            ranks = [rank for rank in ranks if _names_gpu(rank, gpu)]
        return ranks[0] if len(ranks) == 1 else None

    def _running(self, gpu: Gpu) -> set[Rank]:
        return {rank for process in self._processes[gpu.labels] if (rank := self._rank_of(process.pid, gpu))}

    def _claiming(self, gpu: Gpu) -> Iterable[Rank]:
        """Return the ranks that name this GPU and can have it."""
        pods = {(owner.namespace, owner.pod) for owner in self._seen.owners.get(gpu.labels, ())}
        running = self._running(gpu)
        for rank in self._seen.ranks:
            if rank in running or not _names_gpu(rank, gpu):
                continue
            mine = self._names.get(rank.pod_uid, _UNNAMED)
            possible = not pods or any(_may_be(mine, pod) for pod in pods)
            # CUDA may name the whole GPU of which the rank has an instance.
            if possible and rank not in self._on_instances.get(gpu.uuid, ()):
                yield rank

    def _pod_names(self) -> dict[str, PodName]:
        told: dict[str, set[PodName]] = defaultdict(set)
        for rank in self._seen.ranks:
            if rank.pod_uid and rank.pod != _UNNAMED:
                told[rank.pod_uid].add(rank.pod)
        names = {uid: next(iter(pods)) if len(pods) == 1 else _UNNAMED for uid, pods in told.items()}
        concluded: dict[str, set[PodName]] = defaultdict(set)
        for reading in self._seen.readings:
            pods = {(owner.namespace, owner.pod) for owner in self._seen.owners.get(reading.gpu.labels, ())}
            places = (self._seen.places.get(process.pid) for process in self._processes[reading.gpu.labels])
            uids = {place.pod_uid for place in places if place}
            uids |= {rank.pod_uid for rank in self._seen.ranks if _names_gpu(rank, reading.gpu)}
            uids.discard("")
            if len(pods) == 1 and len(uids) == 1:
                concluded[uids.pop()] |= pods
        new = {
            uid: next(iter(pods))
            for uid, pods in concluded.items()
            if len(pods) == 1 and len(told.get(uid, ())) < 2 and _may_be(names.get(uid, _UNNAMED), *pods)
        }
        every = [*names.values(), *(pod for uid, pod in new.items() if names.get(uid) != pod)]
        return names | {uid: pod for uid, pod in new.items() if every.count(pod) == 1}


def _may_be(known: PodName, pod: PodName) -> bool:
    """Return whether a partly known pod, by namespace and name, can be that one."""
    return all(mine in {"", other} for mine, other in zip(known, pod, strict=True))


def _names_gpu(rank: Rank, gpu: Gpu) -> bool:
    return bool(rank.gpu_uuid) and key(rank.gpu_uuid) in uuid_keys(gpu)


def _processes(readings: Iterable[Reading]) -> dict[Labels, list[GpuProcess]]:
    """Return each GPU's processes; those on a MIG instance are not repeated for the whole GPU."""
    on_instances: dict[str, set[int]] = defaultdict(set)
    for reading in readings:
        if reading.gpu.mig:
            on_instances[reading.gpu.parent_uuid] |= {process.pid for process in reading.processes or ()}
    return {
        reading.gpu.labels: [
            process
            for process in reading.processes or ()
            if reading.gpu.mig or process.pid not in on_instances.get(reading.gpu.uuid, ())
        ]
        for reading in readings
    }


def _limited(workloads: Mapping[_Workload, _Memory]) -> dict[_Workload, _Memory]:
    """Return the first workloads by name, a stable choice, and all others as one."""
    named = sorted(workload for workload in workloads if workload != _NOBODY)
    kept = {workload: workloads[workload] for workload in named[:MAX_WORKLOADS]}
    rest = [*named[MAX_WORKLOADS:], *(workload for workload in workloads if workload == _NOBODY)]
    return kept | ({_NOBODY: [part for workload in rest for part in workloads[workload]]} if rest else {})
