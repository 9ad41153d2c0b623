import math

import pytest

from tachoscope_analyzers.trace.events.collective_names import (
    bus_factor,
    collective_kind,
    host_collective,
    moves_data,
    only_launches,
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("broadcast_oop", "broadcast"),
        ("reduce", "reduce"),
        ("gather", "gather"),
        ("send", "send"),
        ("recvAnySource", "recv"),
        ("barrier", "barrier"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclSymkDevKernel_AllGather_LL", "all_gather"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send_recv"),
        ("void vllm::cross_device_reduce_2stage<half, 2>(...)", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<true, 7168>(void*, float*)", "all_to_all"),
        ("rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", "other"),
    ],
)
def test_each_name_of_a_collective_has_its_kind(name: str, kind: str) -> None:
    assert collective_kind(name) == kind


def test_annotations_of_backends_are_collectives_and_others_are_not() -> None:
    assert host_collective("gloo:all_reduce") == ("gloo", "all_reduce")
    assert host_collective("nccl:_all_gather_base") == ("nccl", "all_gather")
    assert host_collective("nccl:coalesced_end") == ("", "")
    assert host_collective("## alltoall_fwd_single ##") == ("", "")
    assert only_launches("nccl") and not only_launches("gloo")


def test_waits_move_nothing() -> None:
    assert moves_data("allreduce") and moves_data("barrier")
    assert not any(map(moves_data, ("wait", "init", "", "start_coalescing", "end_coalescing")))


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        ("all_reduce", 8, 2 * 7 / 8),
        ("reduce_scatter", 8, 7 / 8),
        ("all_gather", 4, 3 / 4),
        ("all_to_all", 2, 1 / 2),
        ("broadcast", 8, 1),
        ("reduce", 8, 1),
        ("send", 2, 1),
        ("all_reduce", 1, 0),
    ],
)
def test_bus_bandwidth_follows_nccl_tests(kind: str, ranks: int, factor: float) -> None:
    assert bus_factor(kind, ranks) == pytest.approx(factor)


@pytest.mark.parametrize(("kind", "ranks"), [("all_reduce", -1), ("all_reduce", 0), ("other", 8), ("barrier", 8)])
def test_without_kind_or_number_of_ranks_bus_bandwidth_is_not_known(kind: str, ranks: int) -> None:
    assert math.isnan(bus_factor(kind, ranks))
