"""The collector `pods` on a planted node: a real gRPC server for the kubelet, files for /proc, readings as a driver gives them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trees import collected, plant, points

from gpu.fake_kubelet import FakeKubelet, kubelet
from making import envelope
from tachoscope_core.metrics.gpu import (
    GPU_ACTIVE,
    GPU_DEVICES_UNMAPPED,
    GPU_WORKLOAD,
    GPU_WORKLOAD_MEMORY,
    GPUS_HELD,
    POD_RESOURCES_UP,
)
from tachoscope_core.metrics.training import JOB_SM_ACTIVE
from tachoscope_core.records import records
from tachoscope_node.collectors.collector import NoDataError, PartialError
from tachoscope_node.config.settings import Limits
from tachoscope_node.gpu.reading import Gpu, GpuProcess, Reading
from tachoscope_node.gpu.workloads import pod_resources
from tachoscope_node.gpu.workloads.collector import KEEP_SECONDS, STEPPED_SECONDS, PodsCollector, ranks_with_pods
from tachoscope_node.gpu.workloads.join import Rank
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.spool.owners import pod_of_directory
from tachoscope_service.metrics.family import Family, Histogram
from trying import each

UID_A, UID_B = "a9c80282-3f6b-4d5b-84d5-a137a6668011", "b0d91393-407c-4e6c-95e6-b248b7779122"
UUIDS = [f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(8)]
MIG = "MIG-0000000a-1111-2222-3333-444444444444"
PCI = ("00000000:17:00.0", "00000000:65:00.0")


class Node:
    """What the collector is told, and what it tells."""

    def __init__(self, fake: FakeKubelet, folder: Path) -> None:
        self.kubelet = fake
        self.proc = folder / "proc"
        plant(self.proc, {str(os.getpid()): ""})
        (self.proc / "self").symlink_to(str(os.getpid()))
        for minor, address in enumerate(PCI):
            plant(self.proc, {f"driver/nvidia/gpus/{address[4:]}/information": f"Device Minor: \t {1 - minor}\n"})
        self.readings: Sequence[Reading] = [Reading(Gpu(number, UUIDS[number], pci_bus_id=PCI[number])) for number in range(2)]
        self.ranks: Sequence[Rank] = ()
        self.lines: list[str] = []
        self.now = 1000.0
        self.collector = PodsCollector(
            lambda: self.readings,
            lambda: self.ranks,
            socket=str(fake.socket),
            proc=str(self.proc),
            log=self.lines.append,
            clock=lambda: self.now,
        )

    def process(self, pid: int, uid: str, inner: int) -> GpuProcess:
        group = f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-0123.scope\n"
        plant(self.proc, {f"{pid}/cgroup": group, f"{pid}/status": f"Name:\tpython\nNSpid:\t{pid}\t{inner}\n"})
        return GpuProcess(pid, pid << 20)

    def collect(self) -> list[Family]:
        """Return what is told; where the kubelet does not answer the collector has failed and tells the rest."""
        try:
            found = collected(self.collector)
        except PartialError as error:
            found = list(error.families)
            assert points(found, POD_RESOURCES_UP) == {(): 0.0}
        else:
            assert points(found, POD_RESOURCES_UP) in ({}, {(): 1.0})
        return found

    def pods(self) -> dict[str, set[str]]:
        """Return who has each GPU, as `namespace/pod/container`, by UUID."""
        found: dict[str, set[str]] = {}
        for labels in points(self.collect(), GPU_WORKLOAD):
            found.setdefault(labels[1], set()).add("/".join(labels[3:6]))
        return found


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(
        pod_resources, "device_allocations", functools.partial(pod_resources.device_allocations, deadline_seconds=60.0)
    )  # a crowded machine's
    with kubelet(tmp_path) as fake:
        yield Node(fake, tmp_path)


def test_a_gpu_is_told_with_its_pod_container_rank_and_memory(node: Node) -> None:
    node.kubelet.give(UUIDS[0], UUIDS[1], pod="train-0", container="pytorch")
    node.readings = [
        Reading(Gpu(0, UUIDS[0]), processes=(node.process(4711, UID_A, 17),)),
        Reading(Gpu(1, UUIDS[1]), processes=(node.process(4712, UID_A, 18),)),
    ]
    node.ranks = [Rank("llm", "0", 17, pod_uid=UID_A), Rank("llm", "1", 18, pod_uid=UID_A)]
    found = node.collect()

    assert points(found, GPU_WORKLOAD_MEMORY) == {
        ("0", UUIDS[0], "", "ml", "train-0", "pytorch", "llm", "0"): 4711 << 20,
        ("1", UUIDS[1], "", "ml", "train-0", "pytorch", "llm", "1"): 4712 << 20,
    }
    assert points(found, GPU_WORKLOAD).keys() == points(found, GPU_WORKLOAD_MEMORY).keys()
    assert points(found, POD_RESOURCES_UP) == {(): 1.0}
    assert points(found, GPU_DEVICES_UNMAPPED) == {("device",): 0.0, ("claim",): 0.0}


@pytest.mark.parametrize("form", ["{}", "{}::1"])
def test_a_shared_gpu_has_all_its_pods(node: Node, form: str) -> None:
    node.kubelet.give(form.format(UUIDS[0]), f"{UUIDS[0]}::2", pod="serve-0")
    node.kubelet.give(f"{UUIDS[0]}::3", pod="serve-1")

    assert node.pods() == {UUIDS[0]: {"ml/serve-0/main", "ml/serve-1/main"}}


def test_gpus_by_minor_number_are_those_of_the_kernel_driver_not_of_nvmls_order(node: Node) -> None:
    node.kubelet.give("nvidia0", pod="gke-0")
    node.kubelet.claim("gpu-1", pod="dra-0")

    assert node.pods() == {UUIDS[1]: {"ml/gke-0/main"}, UUIDS[0]: {"ml/dra-0/main"}}


def test_a_mig_instance_has_its_pod_and_the_whole_gpu_has_not(node: Node) -> None:
    slice_ = Gpu(1, MIG, "7", UUIDS[1], mig_profile="1g.10gb")
    node.readings = [*node.readings, Reading(slice_)]
    node.kubelet.give(MIG, pod="slice-0", resource="nvidia.com/mig-1g.10gb")
    node.kubelet.give("nvidia0/gi7", pod="slice-1")
    node.kubelet.claim("gpu-0-mig-1g10gb-19-2", pod="slice-2")

    assert node.pods() == {MIG: {f"ml/slice-{number}/main" for number in range(3)}}


def test_what_is_no_gpu_of_this_node_is_counted(node: Node) -> None:
    node.kubelet.give(UUIDS[7], "nvidia9", "of-a-new-form", pod="train-0")
    node.kubelet.claim("gpu-9", pod="dra-0")
    node.kubelet.give("mlx5_0", pod="train-0", resource="rdma/hca")
    node.kubelet.claim("nic-0", pod="dra-0", driver="nic.example.com")
    found = node.collect()

    assert points(found, GPU_DEVICES_UNMAPPED) == {("device",): 3.0, ("claim",): 1.0}
    assert points(found, GPU_WORKLOAD) == {}


def test_a_kubelet_that_is_away_is_told_once_and_its_last_word_holds_for_a_minute(node: Node) -> None:
    node.kubelet.give(UUIDS[0], pod="train-0")
    there = {UUIDS[0]: {"ml/train-0/main"}}
    assert node.pods() == there
    node.kubelet.stop()

    assert node.pods() == node.pods() == there
    assert points(node.collect(), POD_RESOURCES_UP) == {(): 0.0}
    node.now += KEEP_SECONDS + 1
    assert node.pods() == {}
    node.kubelet.start()
    assert node.pods() == there
    assert points(node.collect(), POD_RESOURCES_UP) == {(): 1.0}
    failed, again = node.lines
    assert f"failed: {node.kubelet.socket}: " in failed
    assert again == "pod-resources: the kubelet answers again"


def test_a_kubelet_that_was_never_there_leaves_what_control_groups_and_ranks_tell(node: Node) -> None:
    node.kubelet.stop()
    node.readings = [Reading(Gpu(0, UUIDS[0]), processes=(node.process(4711, UID_A, 17),))]
    node.ranks = ranks_with_pods([job("llm", directory=f"ml_train-0_{UID_A}", pid=17)], node.now)
    found = node.collect()

    assert points(found, GPU_WORKLOAD_MEMORY) == {("0", UUIDS[0], "", "ml", "train-0", "", "llm", "0"): 4711 << 20}
    assert points(found, POD_RESOURCES_UP) == {(): 0.0}
    node.kubelet.start()


def test_a_kubelet_that_hangs_or_refuses_does_not_hold_the_collector(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.kubelet.hangs = True
    with monkeypatch.context() as in_time:
        in_time.setattr(pod_resources, "device_allocations", pod_resources.device_allocations.func)
        assert points(node.collect(), POD_RESOURCES_UP) == {(): 0.0}
    node.kubelet.stop()
    node.kubelet.hangs = False
    node.kubelet.start()
    node.kubelet.answer.pod_resources.add(name="not a name", namespace="ml").containers.add(name="main").devices.add(
        resource_name="nvidia.com/gpu", device_ids=[UUIDS[0]]
    )
    assert points(node.collect(), POD_RESOURCES_UP) == {(): 0.0}
    (line,) = node.lines
    assert "no answer within 0.9 s" in line


def test_without_a_socket_nobody_is_asked_and_nothing_said_of_it(node: Node) -> None:
    node.kubelet.give(UUIDS[0], pod="train-0")
    node.ranks = [Rank("llm", "3", gpu_uuid=UUIDS[1])]
    alone = PodsCollector(lambda: node.readings, lambda: node.ranks, proc=str(node.proc))
    found = collected(alone)

    assert [family.metric for family in found] == [GPU_WORKLOAD, GPU_WORKLOAD_MEMORY, GPUS_HELD]
    assert points(found, GPU_WORKLOAD) == {("1", UUIDS[1], "", "", "", "", "llm", "3"): 1.0}
    assert node.kubelet.calls == 0


def test_process_ids_of_another_namespace_than_the_drivers_are_not_looked_up(node: Node) -> None:
    node.readings = [Reading(Gpu(0, UUIDS[0]), processes=(node.process(4711, UID_A, 17),))]
    node.ranks = [Rank("llm", "0", 17, pod_uid=UID_A)]
    ranks = {labels[-2:] for labels in points(node.collect(), GPU_WORKLOAD)}
    (node.proc / "self").unlink()
    (node.proc / "self").symlink_to("424242")
    foreign = {labels[-2:] for labels in points(node.collect(), GPU_WORKLOAD)}

    assert (ranks, foreign) == ({("llm", "0")}, {("", "")})


def test_a_node_without_gpus_has_no_workloads(node: Node) -> None:
    node.readings = ()

    with pytest.raises(NoDataError):
        node.collect()
    assert node.kubelet.calls == 0


def job(name: str, **rank: Any) -> Any:
    rank = {"rank": 0, "pid": 0, "gpu_uuid": "", "pod_uid": "", "directory": "run-1", "last_end": None} | rank
    return SimpleNamespace(name=name, running=lambda: [SimpleNamespace(**rank)])


@each(
    ("directory", "uid", "pod"),
    [
        (UID_A, UID_A, ("", "")),
        (f"ml_train-0_{UID_A}", UID_A, ("ml", "train-0")),
        (f"ml_train.0-worker_{UID_A}", UID_A, ("ml", "train.0-worker")),
        (f"run-{UID_A}", "", ("", "")),
        (f"watch-{UID_A}", "", ("", "")),
        (f"ml_{UID_A}", UID_A, ("ml", "")),
        (f"a_ml_train-0_{UID_A}", "", ("", "")),
        (f"ml_Train_{UID_A}", "", ("", "")),
        ("run-1", "", ("", "")),
    ],
)
def test_the_spools_directory_tells_the_pod_if_it_is_one_of_a_pod(directory: str, uid: str, pod: tuple[str, str]) -> None:
    assert pod_of_directory(directory) == (uid, pod)


def test_what_a_ranks_record_says_is_kept_until_the_rank_ends() -> None:
    live = JobRegistry(Limits())

    def tell(rank: int, kind: type[records.Record], **fields: Any) -> None:
        who = envelope(rank, writer=f"{rank}0000000-0000-4000-8000-000000000000")
        live.apply(f"ml_train-0_{UID_A}", str(who["writer"]), "planted", [records.encode(kind(**who, **fields)).rstrip()], 100.0)

    for rank in range(2):
        tell(rank, records.JobStarted, world_size=2, pid=7 + rank, gpu_uuid=UUIDS[rank], pod_uid="x" * 200)
    both = ranks_with_pods(live.jobs.values(), 100.0)
    tell(0, records.JobEnded, status="left")

    assert both == tuple(Rank("planted", str(rank), 7 + rank, UUIDS[rank], UID_A, ("ml", "train-0")) for rank in range(2))
    assert ranks_with_pods(live.jobs.values(), 100.0) == both[1:]
    assert {len(rank.pod_uid) for rank in live.jobs["planted"].ranks.values()} == {64}


def test_what_a_record_says_of_its_pod_counts_only_where_the_path_is_silent() -> None:
    silent = job("a", pod_uid=UID_B, pid=7, gpu_uuid=UUIDS[0])
    told = job("b", pod_uid=UID_B, rank=2, directory=f"ml_train-0_{UID_A}")

    assert ranks_with_pods([silent, told], 100.0) == (
        Rank("a", "0", 7, UUIDS[0], UID_B, ("", "")),
        Rank("b", "2", 0, "", UID_A, ("ml", "train-0")),
    )


def test_a_rank_does_steps_from_its_first_one_until_a_minute_after_its_last() -> None:
    live = JobRegistry(Limits())

    def tell(kind: type[records.Record], at: float, **fields: Any) -> None:
        who = envelope(0, monotonic_ns=round(at * 1e9))
        live.apply("run", str(who["writer"]), "planted", [records.encode(kind(**who, **fields)).rstrip()], at)

    def stepped(now: float) -> bool:
        (rank,) = ranks_with_pods(live.jobs.values(), now)
        return rank.stepped

    tell(records.JobStarted, 100.0, world_size=1, pid=7)
    assert not stepped(100.0)
    tell(records.StepDone, 130.0, step=1, wall_seconds=1.0, phase_seconds={"forward": 1.0})
    tell(records.Heartbeat, 189.0, step=1)

    assert [stepped(130.0), stepped(130.0 + STEPPED_SECONDS - 0.1), stepped(130.0 + STEPPED_SECONDS)] == [True, True, False]


def test_the_gpus_of_a_job_that_does_steps_are_looked_at_each_time_and_the_kubelet_that_is_away_changes_nothing(node: Node) -> None:
    def look(active: float) -> Histogram:
        node.now += 10.0
        node.readings = [Reading(Gpu(0, UUIDS[0]), values={GPU_ACTIVE.name: {("sm",): active}}, at=node.now)]
        (family,) = [family for family in node.collect() if family.metric is JOB_SM_ACTIVE]
        ((labels, found),) = family.points
        assert labels == ("llm",)
        assert isinstance(found, Histogram)
        return found

    node.ranks = [Rank("llm", "0", gpu_uuid=UUIDS[0])]
    assert sum(look(0.45).counts) == 0, "it does no steps yet"
    node.ranks = [Rank("llm", "0", gpu_uuid=UUIDS[0], stepped=True)]
    look(0.45)
    node.kubelet.stop()
    found = look(0.85)

    assert (sum(found.counts), found.sum) == (2, pytest.approx(1.3))
    node.kubelet.start()
