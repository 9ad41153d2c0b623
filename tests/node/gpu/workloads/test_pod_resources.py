"""What the kubelet says of GPUs, read from a real gRPC server that speaks the published API."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.fake_kubelet import kubelet, published_messages
from tachoscope_node.gpu.workloads.pod_resources import (
    MAX_GRANTS,
    ContainerOwner,
    DeviceAllocation,
    NoAnswerError,
    decode,
    device_allocations,
)
from tachoscope_node.gpu.workloads.protobuf_fields import WireError

GPU = "GPU-00000000-1111-2222-3333-{:012d}"
MAIN = ContainerOwner("ml", "train-0", "main")


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return published_messages(tmp_path_factory.mktemp("proto"))


def test_the_gpus_of_all_containers_are_told(tmp_path: Path) -> None:
    with kubelet(tmp_path) as fake:
        fake.give(GPU.format(0), GPU.format(1), pod="train-0")
        fake.give(GPU.format(2), pod="serve-0", container="engine", namespace="prod")
        fake.container("no-gpu")

        assert device_allocations(str(fake.socket), deadline_seconds=60.0) == (
            DeviceAllocation(MAIN, (GPU.format(0),)),
            DeviceAllocation(MAIN, (GPU.format(1),)),
            DeviceAllocation(ContainerOwner("prod", "serve-0", "engine"), (GPU.format(2),)),
        )


@pytest.mark.parametrize(
    ("resource", "device", "told"),
    [
        ("nvidia.com/gpu", "GPU-6c1d0a11-1111-2222-3333-444444444444::3", True),
        ("nvidia.com/gpu.shared", "GPU-6c1d0a11-1111-2222-3333-444444444444::0", True),
        ("nvidia.com/mig-1g.10gb", "MIG-6c1d0a11-1111-2222-3333-444444444444", True),
        ("nvidia.com/gpu", "nvidia0/vgpu1", True),
        ("nvidia.com/gpu", "of-a-form-that-nobody-knows", True),
        ("example.com/fraction", "GPU-6c1d0a11-1111-2222-3333-444444444444", True),
        ("example.com/fraction", "nvidia0", False),
        ("nvidia.com/hostdev", "0000:17:00.0", False),
        ("rdma/hca", "mlx5_0", False),
    ],
)
def test_devices_that_can_be_gpus_are_told_and_others_not(tmp_path: Path, resource: str, device: str, told: bool) -> None:
    with kubelet(tmp_path) as fake:
        fake.give(device, pod="train-0", resource=resource)

        assert device_allocations(str(fake.socket), deadline_seconds=60.0) == ((DeviceAllocation(MAIN, (device,)),) if told else ())


def test_claimed_devices_are_told_with_all_their_names(tmp_path: Path) -> None:
    with kubelet(tmp_path) as fake:
        fake.claim("gpu-0", "k8s.gpu.nvidia.com/claim=8f1d-gpu-0", pod="train-0")
        fake.claim("card", "vendor.com/gpu=GPU-6c1d0a11-1111-2222-3333-444444444444", pod="train-0", driver="gpu.vendor.com")
        fake.claim("nic-0", "vendor.com/nic=nvidia", pod="train-0", driver="nic.vendor.com")

        assert device_allocations(str(fake.socket), deadline_seconds=60.0) == (
            DeviceAllocation(MAIN, ("gpu-0", "8f1d-gpu-0"), "claim"),
            DeviceAllocation(MAIN, ("card", "GPU-6c1d0a11-1111-2222-3333-444444444444"), "claim"),
        )


def test_a_node_of_250_pods_with_megabytes_of_other_devices_is_read(tmp_path: Path) -> None:
    with kubelet(tmp_path) as fake:
        for number in range(250):
            container = fake.container(f"pod-{number}")
            container.cpu_ids.extend(range(96))
            container.memory.add(memory_type="memory", size=1 << 40).topology.nodes.add(ID=1)
            container.devices.add(resource_name="rdma/hca", device_ids=[f"pod-{number}-device-{n:080d}" for n in range(220)])
            fake.give(GPU.format(number), pod=f"pod-{number}")
        assert fake.answer.ByteSize() > 4 << 20

        told = device_allocations(str(fake.socket), deadline_seconds=60.0)

    assert [grant.names[0] for grant in told] == [GPU.format(number) for number in range(250)]


_name = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
_container = st.fixed_dictionaries({"name": _name, "gpus": st.lists(st.integers(0, 99), max_size=3), "other": st.text(max_size=20)})
_pod = st.fixed_dictionaries({"name": _name, "namespace": _name, "containers": st.lists(_container, max_size=3)})


@given(pods=st.lists(_pod, max_size=5), numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_whatever_else_a_pod_has_exactly_its_gpus_are_told(
    messages: dict[str, Any], pods: list[dict[str, Any]], numbers: list[int]
) -> None:
    answer = messages["v1.ListPodResourcesResponse"]()
    planted: dict[DeviceAllocation, None] = {}
    for pod in pods:
        told = answer.pod_resources.add(name=pod["name"], namespace=pod["namespace"], cpu_ids=numbers)
        for container in pod["containers"]:
            ids = [GPU.format(number) for number in container["gpus"]]
            message = told.containers.add(name=container["name"], cpu_ids=numbers)
            message.devices.add(resource_name="rdma/nvidia", device_ids=[container["other"], "GPU-0"])
            message.devices.add(resource_name="nvidia.com/gpu", device_ids=ids).topology.nodes.add(ID=1)
            owner = ContainerOwner(pod["namespace"], pod["name"], container["name"])
            planted.update((DeviceAllocation(owner, (name,)), None) for name in ids)

    assert decode(answer.SerializeToString()) == tuple(planted)


@pytest.mark.parametrize("wrong", ["", "Train", "a b", "a\n", "-a", "a" * 254, "ü", '{"x"}'])
@pytest.mark.parametrize("field", ["pod", "container", "namespace"])
def test_a_name_that_no_pod_can_have_is_refused(messages: dict[str, Any], field: str, wrong: str) -> None:
    names = {"pod": "train-0", "container": "main", "namespace": "ml"} | {field: wrong}
    answer = messages["v1.ListPodResourcesResponse"]()
    pod = answer.pod_resources.add(name=names["pod"], namespace=names["namespace"])
    pod.containers.add(name=names["container"]).devices.add(resource_name="nvidia.com/gpu", device_ids=[GPU.format(0)])

    with pytest.raises(WireError, match="invalid pod name"):
        decode(answer.SerializeToString())


def test_more_devices_than_a_node_can_have_are_refused(messages: dict[str, Any]) -> None:
    answer = messages["v1.ListPodResourcesResponse"]()
    container = answer.pod_resources.add(name="a", namespace="b").containers.add(name="c")
    container.devices.add(resource_name="nvidia.com/gpu", device_ids=[str(number) for number in range(MAX_GRANTS + 1)])

    with pytest.raises(WireError, match=f"more than {MAX_GRANTS} devices"):
        decode(answer.SerializeToString())


def test_a_message_cut_anywhere_gives_an_error_or_less_but_never_more(messages: dict[str, Any]) -> None:
    answer = messages["v1.ListPodResourcesResponse"]()
    for number in range(2):
        container = answer.pod_resources.add(name=f"a{number}", namespace="b").containers.add(name="c")
        container.devices.add(resource_name="nvidia.com/gpu", device_ids=[GPU.format(number)])
    whole = answer.SerializeToString()

    for cut, flip in itertools.product(range(len(whole)), (0, 0x80, 0xFF)):
        with contextlib.suppress(WireError):
            changed = whole[:cut] + bytes([whole[cut] ^ flip]) + whole[cut + 1 :] if flip else whole[:cut]
            assert len(decode(changed)) <= 2


def test_a_kubelet_that_hangs_or_refuses_or_is_gone_is_an_error_and_one_that_is_back_answers(tmp_path: Path) -> None:
    with kubelet(tmp_path) as fake:
        fake.give(GPU.format(0), pod="train-0")
        fake.hangs = True
        with pytest.raises(NoAnswerError, match="no answer within 0.3 s"):
            device_allocations(str(fake.socket), deadline_seconds=0.3)
        fake.stop()
        with pytest.raises(NoAnswerError, match="No such file|refused"):
            device_allocations(str(fake.socket), deadline_seconds=60.0)
        fake.hangs = False
        fake.start()
        assert len(device_allocations(str(fake.socket), deadline_seconds=60.0)) == 1
