"""Who has each GPU: planted nodes come back, memory is what the driver said, and nothing is concluded that does not follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from trees import points

from tachoscope_core.metrics.gpu import GPU_WORKLOAD, GPU_WORKLOAD_MEMORY, GPUS_HELD
from tachoscope_node.gpu.reading import Gpu, GpuProcess, Reading
from tachoscope_node.gpu.workloads.cgroup_pods import CgroupPlacement
from tachoscope_node.gpu.workloads.join import MAX_WORKLOADS, Rank, WorkloadSnapshot, families
from tachoscope_node.gpu.workloads.pod_resources import ContainerOwner
from tachoscope_service.metrics.family import Labels

GIB = 1 << 30
UID_A, UID_B, UID_C = (f"{digit}{digit}{digit}{digit}{digit}{digit}{digit}{digit}-1111-2222-3333-444444444444" for digit in "abc")
A, B = ContainerOwner("ml", "train-0", "main"), ContainerOwner("ml", "train-1", "main")


def gpu(index: int) -> Gpu:
    return Gpu(index, f"GPU-0000000{index}-1111-2222-3333-444444444444")


def slice_of(parent: Gpu, instance: int) -> Gpu:
    return Gpu(parent.index, f"MIG-0000{instance:02d}0{parent.index}-1111-2222-3333-444444444444", str(instance), parent.uuid)


def reading(of: Gpu, **processes: float | None) -> Reading:
    """Processes by `p<pid>`, in GiB."""
    listed = (GpuProcess(int(pid[1:]), None if gib is None else int(gib * GIB)) for pid, gib in processes.items())
    return Reading(of, processes=tuple(listed))


def joined(
    readings: Sequence[Reading],
    owners: Mapping[Gpu, Sequence[ContainerOwner]] | None = None,
    places: Mapping[int, CgroupPlacement] | None = None,
    ranks: Sequence[Rank] = (),
) -> dict[Labels, float | None]:
    """Return the GiB of each workload by (gpu, mig, namespace, pod, container, job, rank); None where no memory is shown."""
    by_labels = {of.labels: list(some) for of, some in (owners or {}).items()}
    found = families(WorkloadSnapshot(readings, by_labels, places or {}, ranks))
    info, memory = points(found, GPU_WORKLOAD), points(found, GPU_WORKLOAD_MEMORY)
    assert memory.keys() <= info.keys()
    assert set(info.values()) <= {1.0}
    return {(labels[0], *labels[2:]): memory[labels] / GIB if labels in memory else None for labels in info}


def rank(number: int, **fields: Any) -> Rank:
    return Rank("llm", str(number), **fields)


def test_a_gpu_of_one_pod_with_its_rank_is_one_workload_with_all_its_names() -> None:
    found = joined(
        [reading(gpu(0), p4711=30), reading(gpu(1), p4712=40)],
        {gpu(0): [A], gpu(1): [A]},
        {4711: CgroupPlacement(UID_A, 7), 4712: CgroupPlacement(UID_A, 8)},
        [rank(0, pid=7, pod_uid=UID_A), rank(1, pid=8, pod_uid=UID_A, gpu_uuid=gpu(1).uuid)],
    )
    assert found == {("0", "", "ml", "train-0", "main", "llm", "0"): 30.0, ("1", "", "ml", "train-0", "main", "llm", "1"): 40.0}


def test_a_pod_without_ranks_is_a_workload_and_so_is_one_that_computes_nothing() -> None:
    found = joined([reading(gpu(0), p4711=3), reading(gpu(1))], {gpu(0): [A], gpu(1): [B]}, {4711: CgroupPlacement(UID_A, 7)})

    assert found == {("0", "", "ml", "train-0", "main", "", ""): 3.0, ("1", "", "ml", "train-1", "main", "", ""): None}


def test_a_lost_gpu_still_tells_whose_it_was() -> None:
    lost = Reading(gpu(0), up=False, fault="lost")

    assert joined([lost], {gpu(0): [A]}, ranks=[rank(3, gpu_uuid=gpu(0).uuid, pod_uid=UID_A)]) == {
        ("0", "", "ml", "train-0", "main", "llm", "3"): None
    }


def test_without_kubernetes_the_rank_and_its_process_are_joined() -> None:
    found = joined(
        [reading(gpu(0), p100=5, p200=1)],
        places={100: CgroupPlacement("", 100), 200: CgroupPlacement("", 200)},
        ranks=[rank(0, pid=100)],
    )
    assert found == {("0", "", "", "", "", "llm", "0"): 5.0, ("0", "", "", "", "", "", ""): 1.0}


def test_without_process_ids_the_uuid_of_the_record_joins() -> None:
    unseen = Reading(gpu(0), processes=None)

    for written in (gpu(0).uuid, gpu(0).uuid.removeprefix("GPU-"), gpu(0).uuid.upper()):
        assert joined([unseen], ranks=[rank(0, gpu_uuid=written)]) == {("0", "", "", "", "", "llm", "0"): None}
    assert joined([unseen], ranks=[rank(0, gpu_uuid=gpu(1).uuid), rank(1)]) == {}


def test_pods_that_share_a_gpu_each_have_their_own_memory_and_no_value_comes_twice() -> None:
    found = joined(
        [reading(gpu(0), p1=10, p2=20, p3=30)],
        {gpu(0): [A, B]},
        {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_B, 1), 3: CgroupPlacement(UID_B, 9)},
        [rank(0, pid=1, pod_uid=UID_A, pod=("ml", "train-0")), rank(1, pid=1, pod_uid=UID_B, pod=("ml", "train-1"))],
    )
    assert found == {
        ("0", "", "ml", "train-0", "main", "llm", "0"): 10.0,
        ("0", "", "ml", "train-1", "main", "llm", "1"): 20.0,
        ("0", "", "ml", "train-1", "main", "", ""): 30.0,
    }


def test_which_of_two_sharing_pods_a_process_is_in_is_not_guessed() -> None:
    found = joined([reading(gpu(0), p1=10, p2=20)], {gpu(0): [A, B]}, {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_B, 1)})

    assert found == {
        ("0", "", "ml", "train-0", "main", "", ""): None,
        ("0", "", "ml", "train-1", "main", "", ""): None,
        ("0", "", "", "", "", "", ""): 30.0,
    }


def test_a_gpu_that_a_pod_has_alone_names_it_on_those_that_it_shares() -> None:
    found = joined(
        [reading(gpu(0), p1=10), reading(gpu(1), p2=20, p3=30)],
        {gpu(0): [A], gpu(1): [A, B]},
        {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_A, 2), 3: CgroupPlacement(UID_B, 1)},
    )
    assert found["1", "", "ml", "train-0", "main", "", ""] == 20.0
    assert found["1", "", "", "", "", "", ""] == 30.0


def test_a_process_of_another_pod_on_a_pods_own_gpu_is_not_taken_for_the_pods() -> None:
    found = joined(
        [reading(gpu(0), p1=10, p2=1)],
        {gpu(0): [A]},
        {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_B, 1)},
        [rank(0, pid=1, pod_uid=UID_A, pod=("ml", "train-0"))],
    )
    assert found == {("0", "", "ml", "train-0", "main", "llm", "0"): 10.0, ("0", "", "", "", "", "", ""): 1.0}


def test_one_pod_is_never_two_uids_and_one_uid_never_two_pods() -> None:
    alone = [reading(gpu(0), p1=1), reading(gpu(1), p2=2)]
    two_uids = joined(alone, {gpu(0): [A], gpu(1): [A]}, {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_B, 1)})
    two_pods = joined(alone, {gpu(0): [A], gpu(1): [B]}, {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_A, 2)})
    contradicted = joined(
        [reading(gpu(0), p1=1)],
        {gpu(0): [A]},
        {1: CgroupPlacement(UID_A, 1)},
        [rank(0, pod_uid=UID_A, pod=("ml", "x")), rank(1, pod_uid=UID_A, pod=("ml", "y"))],
    )
    for found in (two_uids, two_pods, contradicted):
        assert found["0", "", "", "", "", "", ""] == 1.0


def test_a_namespace_alone_is_shown_until_the_pods_name_is_known_and_another_namespaces_pod_is_not_it() -> None:
    def found(namespace: str, owners: Mapping[Gpu, Sequence[ContainerOwner]]) -> dict[Labels, float | None]:
        ranks = [rank(0, pid=1, pod_uid=UID_A, pod=(namespace, ""), gpu_uuid=gpu(0).uuid)]
        return joined([reading(gpu(0), p1=1)], owners, {1: CgroupPlacement(UID_A, 1)}, ranks)

    assert found("ml", {}) == {("0", "", "ml", "", "", "llm", "0"): 1.0}
    assert found("ml", {gpu(0): [A]}) == {("0", "", "ml", "train-0", "main", "llm", "0"): 1.0}
    assert found("other", {gpu(0): [A]}) == {
        ("0", "", "ml", "train-0", "main", "", ""): None,
        ("0", "", "other", "", "", "llm", "0"): 1.0,
    }


def test_processes_of_one_id_in_two_pods_are_told_apart_and_in_two_containers_only_by_the_uuid() -> None:
    on_two = [reading(gpu(0), p1=1), reading(gpu(1), p2=2)]
    both = {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_A, 1)}
    pods = joined(
        on_two,
        places={1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_B, 1)},
        ranks=[rank(0, pid=1, pod_uid=UID_A), rank(1, pid=1, pod_uid=UID_B)],
    )
    assert pods == {("0", "", "", "", "", "llm", "0"): 1.0, ("1", "", "", "", "", "llm", "1"): 2.0}

    unknown = joined(on_two, places=both, ranks=[rank(0, pid=1, pod_uid=UID_A), rank(1, pid=1, pod_uid=UID_A)])
    assert unknown == {("0", "", "", "", "", "", ""): 1.0, ("1", "", "", "", "", "", ""): 2.0}

    ranks = [rank(number, pid=1, pod_uid=UID_A, gpu_uuid=gpu(number).uuid) for number in range(2)]
    assert joined(on_two, places=both, ranks=ranks) == pods


def test_an_id_inside_a_container_is_not_taken_for_one_of_the_host() -> None:
    in_container = joined(
        [reading(gpu(0), p4711=1)], places={4711: CgroupPlacement("", 7)}, ranks=[rank(0, pid=7), rank(1, pid=4711)]
    )
    in_a_pod = joined([reading(gpu(0), p7=1)], places={7: CgroupPlacement(UID_A, 7)}, ranks=[rank(0, pid=7)])
    gone = joined([reading(gpu(0), p7=1)], ranks=[rank(0, pid=7)])

    assert in_container == in_a_pod == gone == {("0", "", "", "", "", "", ""): 1.0}


def test_a_rank_whose_context_lies_on_a_gpu_that_is_not_its_own_is_seen_there() -> None:
    found = joined(
        [reading(gpu(0), p1=40, p2=0.5), reading(gpu(1), p2=40)],
        places={1: CgroupPlacement("", 1), 2: CgroupPlacement("", 2)},
        ranks=[rank(0, pid=1, gpu_uuid=gpu(0).uuid), rank(1, pid=2, gpu_uuid=gpu(1).uuid)],
    )
    assert found["0", "", "", "", "", "llm", "1"] == 0.5
    assert found["1", "", "", "", "", "llm", "1"] == 40.0


def test_a_record_that_names_a_gpu_of_other_pods_is_not_believed() -> None:
    claims = [rank(0, pid=1, pod_uid=UID_B, pod=("evil", "thief"), gpu_uuid=gpu(0).uuid)]

    assert joined([reading(gpu(0), p4711=1)], {gpu(0): [A]}, {4711: CgroupPlacement(UID_A, 1)}, claims) == {
        ("0", "", "ml", "train-0", "main", "", ""): None,
        ("0", "", "", "", "", "", ""): 1.0,
    }
    assert joined([reading(gpu(0))], {gpu(0): [A]}, {}, claims) == {("0", "", "ml", "train-0", "main", "", ""): None}
    assert ("0", "", "evil", "thief", "", "llm", "0") in joined([reading(gpu(0))], {}, {}, claims)


def test_of_two_containers_of_one_pod_the_one_that_holds_the_process_is_not_guessed() -> None:
    side = ContainerOwner("ml", "train-0", "side")
    found = joined([reading(gpu(0), p1=1)], {gpu(0): [A, side]}, {1: CgroupPlacement(UID_A, 1)})

    assert found == {
        ("0", "", "ml", "train-0", "", "", ""): 1.0,
        ("0", "", "ml", "train-0", "main", "", ""): None,
        ("0", "", "ml", "train-0", "side", "", ""): None,
    }


def test_a_mig_instance_has_its_own_workloads_and_the_whole_gpu_does_not_count_them_again() -> None:
    first, second = slice_of(gpu(0), 1), slice_of(gpu(0), 2)
    found = joined(
        [reading(gpu(0), p1=10, p2=20, p3=1), reading(first, p1=10), reading(second, p2=20)],
        {first: [A], second: [B]},
        {1: CgroupPlacement(UID_A, 1), 2: CgroupPlacement(UID_B, 1), 3: CgroupPlacement("", 3)},
        [
            # CUDA named the instance to one, the whole GPU to the other.
            rank(0, pid=1, pod_uid=UID_A, gpu_uuid=first.uuid),
            rank(1, pid=1, pod_uid=UID_B, gpu_uuid=gpu(0).uuid),
        ],
    )
    assert found == {
        ("0", "", "", "", "", "", ""): 1.0,
        ("0", "1", "ml", "train-0", "main", "llm", "0"): 10.0,
        ("0", "2", "ml", "train-1", "main", "llm", "1"): 20.0,
    }


def test_a_rank_that_names_its_instance_in_the_old_form_is_joined_to_it() -> None:
    first, second = slice_of(gpu(0), 1), slice_of(gpu(0), 2)
    found = joined([reading(gpu(0)), reading(first), reading(second)], ranks=[rank(0, gpu_uuid=f"MIG-{gpu(0).uuid}/2/0")])

    assert found == {("0", "2", "", "", "", "llm", "0"): None}


def test_memory_that_the_driver_does_not_tell_is_not_shown_as_less() -> None:
    some = joined([reading(gpu(0), p1=10, p2=None)], places={1: CgroupPlacement("", 1), 2: CgroupPlacement("", 2)})

    assert some == {("0", "", "", "", "", "", ""): None}


def test_beyond_the_limit_the_rest_is_one_workload_and_the_sum_stays() -> None:
    uids = [f"{number:08d}-1111-2222-3333-444444444444" for number in range(40)]
    ranks = [rank(number, pid=1, pod_uid=uid, pod=("ml", f"pod-{number:02d}")) for number, uid in enumerate(uids)]
    processes = {f"p{number + 1}": float(number) for number in range(40)}
    found = joined(
        [reading(gpu(0), **processes)], places={number + 1: CgroupPlacement(uid, 1) for number, uid in enumerate(uids)}, ranks=ranks
    )
    assert len(found) == MAX_WORKLOADS + 1
    assert sum(gib or 0.0 for gib in found.values()) == sum(range(40))
    assert [labels[3] for labels in found][:MAX_WORKLOADS] == [f"pod-{number:02d}" for number in range(MAX_WORKLOADS)]


_uid = st.sampled_from(["", UID_A, UID_B, UID_C])
_gpu_number = st.integers(0, 3)
_process = st.tuples(st.integers(1, 12), st.one_of(st.none(), st.integers(0, 80)))
_place = st.builds(CgroupPlacement, _uid, st.integers(0, 12))
_owner = st.builds(ContainerOwner, st.just("ml"), st.sampled_from(["a", "b", "c"]), st.sampled_from(["main", "side"]))
_rank = st.builds(
    Rank,
    st.sampled_from(["llm", "vit"]),
    st.integers(0, 7).map(str),
    st.integers(0, 12),
    st.one_of(st.just(""), _gpu_number.map(lambda number: gpu(number).uuid)),
    _uid,
    st.sampled_from([("", ""), ("ml", ""), ("ml", "a"), ("ml", "b"), ("evil", "x")]),
)


@given(
    nodes=st.dictionaries(_gpu_number, st.lists(_process, max_size=6), min_size=1),
    owners=st.dictionaries(_gpu_number, st.lists(_owner, max_size=3, unique=True)),
    places=st.dictionaries(st.integers(1, 12), _place),
    ranks=st.lists(_rank, max_size=6),
)
def test_on_any_node_memory_sums_to_what_the_driver_said_and_pods_are_those_that_somebody_named(
    nodes: dict[int, list[tuple[int, int | None]]],
    owners: dict[int, list[ContainerOwner]],
    places: dict[int, CgroupPlacement],
    ranks: list[Rank],
) -> None:
    readings = [
        Reading(gpu(number), processes=tuple(GpuProcess(pid, gib if gib is None else gib * GIB) for pid, gib in listed))
        for number, listed in nodes.items()
    ]
    found = joined(readings, {gpu(number): some for number, some in owners.items()}, places, ranks)

    by_gpu: dict[str, list[float | None]] = defaultdict(list)
    for labels, gib in found.items():
        by_gpu[labels[0]].append(gib)
        assert labels[2:4] in {
            ("", ""),
            *(rank.pod for rank in ranks),
            *((o.namespace, o.pod) for some in owners.values() for o in some),
        }
        assert labels[5:] == ("", "") or labels[5:] in {(rank.training_job, rank.rank) for rank in ranks}
    for number, listed in nodes.items():
        told = [gib for _, gib in listed if gib is not None]
        shown = sum(gib or 0.0 for gib in by_gpu[str(number)])
        assert shown == sum(told) if len(told) == len(listed) else shown <= sum(told)
        for owner in owners.get(number, ()):
            assert any(
                labels[0] == str(number) and labels[2:5] == (owner.namespace, owner.pod, owner.container) for labels in found
            )


def test_a_gpu_counts_once_as_held_however_many_share_it_or_its_slices() -> None:
    pods = {gpu(0): [A, B], slice_of(gpu(1), 1): [A], slice_of(gpu(1), 2): [B]}
    readings = [reading(gpu(0)), reading(slice_of(gpu(1), 1)), reading(slice_of(gpu(1), 2)), reading(gpu(2))]

    found = families(WorkloadSnapshot(readings, {of.labels: some for of, some in pods.items()}, {}, ()))

    assert points(found, GPUS_HELD) == {(): 2.0}


def test_where_no_workload_is_known_nothing_is_said_of_held_gpus() -> None:
    assert points(families(WorkloadSnapshot([reading(gpu(0))], {}, {}, ())), GPUS_HELD) == {}
