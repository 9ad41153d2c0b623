"""A fake kubelet: a real gRPC server (grpcio) on a unix socket that speaks the published pod-resources API."""

from __future__ import annotations

import contextlib
import importlib.resources
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

_PROTO = Path(__file__).with_name("podresources_v1.proto")


def published_messages(folder: Path) -> dict[str, Any]:
    """Return the classes of the published messages by name, compiled by protoc in a folder."""
    compiled = folder / "podresources.bin"
    include = importlib.resources.files(grpc_tools) / "_proto"
    arguments = ["protoc", f"-I{_PROTO.parent}", f"-I{include}", f"--descriptor_set_out={compiled}", _PROTO.name]
    assert protoc.main(arguments) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClassesForFiles([_PROTO.name], pool)


class FakeKubelet:
    """Answers `List` with `answer`.

    Attributes:
        failure: a gRPC status to answer with instead. hangs: answers only when it is stopped. calls: how often it was asked.
    """

    def __init__(self, socket: Path, folder: Path) -> None:
        self.socket = socket
        messages = published_messages(folder)
        self.answer = messages["v1.ListPodResourcesResponse"]()
        self._request = messages["v1.ListPodResourcesRequest"]
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.hangs = False
        self.calls = 0
        self._stopping = threading.Event()

    def container(self, pod: str, container: str = "main", namespace: str = "ml") -> Any:
        """Return the container's message, made where there is none."""
        pods = self.answer.pod_resources
        found = next((one for one in pods if (one.namespace, one.name) == (namespace, pod)), None)
        found = found or pods.add(namespace=namespace, name=pod)
        named = next((one for one in found.containers if one.name == container), None)
        return named or found.containers.add(name=container)

    def give(
        self, *devices: str, pod: str, container: str = "main", namespace: str = "ml", resource: str = "nvidia.com/gpu"
    ) -> None:
        """Let a container have devices of a device plugin."""
        self.container(pod, container, namespace).devices.add(resource_name=resource, device_ids=devices)

    def claim(self, device: str, *cdi: str, pod: str, driver: str = "gpu.nvidia.com") -> None:
        """Let a pod's container have a device by a ResourceClaim."""
        claimed = self.container(pod).dynamic_resources.add(claim_name=f"{pod}-gpu", claim_namespace="ml")
        resource = claimed.claim_resources.add(driver_name=driver, pool_name="node-1", device_name=device)
        for name in cdi:
            resource.cdi_devices.add(name=name)

    def _list(self, _: Any, context: grpc.ServicerContext) -> Any:
        self.calls += 1
        if self.hangs:
            self._stopping.wait()
        if self.failure is not None:
            context.abort(*self.failure)
        return self.answer

    def start(self) -> None:
        self._stopping.clear()
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        method = grpc.unary_unary_rpc_method_handler(
            self._list, request_deserializer=self._request.FromString, response_serializer=lambda answer: answer.SerializeToString()
        )
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})])
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        self._stopping.set()
        self._server.stop(None).wait()


@contextlib.contextmanager
def kubelet(folder: Path) -> Iterator[FakeKubelet]:
    """Run a fake kubelet for the length of the block; its socket is `kubelet.sock` in the folder."""
    folder.mkdir(exist_ok=True)
    fake = FakeKubelet(folder / "kubelet.sock", folder)
    fake.start()
    try:
        yield fake
    finally:
        fake.stop()
