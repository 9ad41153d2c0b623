"""Which container was given which GPU, as the kubelet's pod-resources API tells it.

Of the published messages only `List` is asked for, and of its answer only what can be about GPUs is looked at: a kubelet also lists
network devices, CPUs and memory, up to megabytes of it.
https://github.com/kubernetes/kubelet/blob/v0.34.0/pkg/apis/podresources/v1/api.proto
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tachoscope_node.gpu.workloads.device_ids import DRA_DRIVER, is_uuid
from tachoscope_node.gpu.workloads.protobuf_fields import WireError, fields

DEADLINE_SECONDS = 0.9
MAX_BYTES = 16 << 20
"""The kubelet's own clients take as much: four times gRPC's default, which a node of 250 pods can exceed."""
MAX_GRANTS = 8192
_LIST = "/v1.PodResourcesLister/List"
_MARKS = (b"nvidia", b"GPU-", b"MIG-")
"""What is about a GPU holds one of these: in the resource's or driver's name, or in the device's id."""
_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-).*")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Names of namespaces, pods and containers: RFC 1123. https://kubernetes.io/docs/concepts/overview/working-with-objects/names/"""


class NoAnswerError(Exception):
    """The kubelet did not tell."""


@dataclass(frozen=True, slots=True)
class ContainerOwner:
    """A container of a pod."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """A device that a container was given.

    Attributes:
        names: what the device is called, one or more. kind: `device` (by a device plugin) or `claim` (a ResourceClaim's).
    """

    owner: ContainerOwner
    names: tuple[str, ...]
    kind: str = "device"


def device_allocations(socket: str, *, deadline_seconds: float = DEADLINE_SECONDS) -> tuple[DeviceAllocation, ...]:
    """Return the GPUs that containers of this node have, by the kubelet's word.

    Raises:
        NoAnswerError: whatever the reason; the text names the socket.
    """
    from tachoscope_node.gpu.workloads.grpc_unary import CallError, call  # 3 MiB, for nodes with a kubelet only

    try:
        return decode(call(socket, _LIST, b"", deadline_seconds=deadline_seconds, max_bytes=MAX_BYTES))
    except CallError as error:
        raise NoAnswerError(str(error)) from None
    except WireError as error:
        raise NoAnswerError(f"{socket}: not an answer of the pod-resources API: {error}") from None


def decode(answer: bytes) -> tuple[DeviceAllocation, ...]:
    """Return what a serialised `ListPodResourcesResponse` says of GPUs.

    Raises:
        WireError: the bytes are no such message, or it holds names that no pod can have.
    """
    grants: dict[DeviceAllocation, None] = {}  # a container may have several replicas of one GPU
    for pod in _all(answer, 1):
        if not _may_matter(pod):
            continue
        for container in _all(pod, 3):
            found = [*_devices(container), *_claims(container)] if _may_matter(container) else []
            if found:
                owner = ContainerOwner(_name(pod, 2), _name(pod, 1), _name(container, 1))
                grants.update((DeviceAllocation(owner, names, kind), None) for names, kind in found)
            if len(grants) > MAX_GRANTS:
                raise WireError(f"more than {MAX_GRANTS} devices")
    return tuple(grants)


def _devices(container: bytes) -> Iterator[tuple[tuple[str, ...], str]]:
    for devices in _all(container, 2):
        if not _may_matter(devices):
            continue
        known = _RESOURCE.fullmatch(_text(devices, 1)) is not None
        for raw in _all(devices, 2):
            device = raw.decode(errors="replace")
            if known or is_uuid(device):
                yield (device,), "device"


def _claims(container: bytes) -> Iterator[tuple[tuple[str, ...], str]]:
    for claim in _all(container, 5):
        for resource in _all(claim, 4):
            # A CDI device is named vendor/class=name; the name may be the GPU's UUID.
            cdi = [_text(device, 1).rpartition("=")[2] for device in _all(resource, 1)]
            if _text(resource, 2) == DRA_DRIVER or any(map(is_uuid, cdi)):
                yield (_text(resource, 4), *cdi), "claim"


def _all(message: bytes, wanted: int) -> Iterator[bytes]:
    return (content for number, content in fields(message) if number == wanted)


def _text(message: bytes, wanted: int) -> str:
    return next(_all(message, wanted), b"").decode(errors="replace")


def _name(message: bytes, wanted: int) -> str:
    name = _text(message, wanted)
    if _NAME.fullmatch(name) is None:
        raise WireError(f"invalid pod name: {name[:80]!r}")
    return name


def _may_matter(message: bytes) -> bool:
    return any(mark in message for mark in _MARKS)
