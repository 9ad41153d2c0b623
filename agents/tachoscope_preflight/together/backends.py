"""What carries an exchange: gloo between the hosts' memories, NCCL between their first GPUs. All else is the same code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_preflight.hardware import cpu

_CONNECT_SECONDS = 1.0
"""Of one of five attempts that gloo makes."""
_PATIENCE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Backend:
    """How this host reaches the others.

    Attributes:
        address: of this host, from which it reaches the first one; of gloo without an interface. interface: of the network.
    """

    torch: Any
    name: str
    address: str
    interface: str | None

    @property
    def device(self) -> str:
        return "cuda:0" if self.name == "nccl" else "cpu"

    @property
    def comparable_with(self) -> str:
        """What is equal for exchanges that may be compared."""
        return f"{self.name}, {self.torch.cuda.get_device_name(self.device) if self.name == 'nccl' else cpu()}"

    def group(self, store: Any, rank: int, size: int) -> Group:
        """Return a group of hosts. RuntimeError if a member does not come in time."""
        distributed = self.torch.distributed
        if self.name == "nccl":
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = _PATIENCE
            return Group(self, distributed.ProcessGroupNCCL(store, rank, size, options))
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()
        where = {"interface": self.interface} if self.interface else {"hostname": self.address}
        options._devices = [gloo.create_device(**where)]
        options._timeout = timedelta(seconds=_CONNECT_SECONDS)
        return Group(self, gloo(store, rank, size, options))


class Group:
    """Some hosts. Each call returns when the data is there, and raises RuntimeError if it does not come in time."""

    def __init__(self, backend: Backend, group: Any) -> None:
        self._backend, self._group = backend, group

    def send(self, tensor: Any, other: int) -> None:
        self._done(self._group.send([tensor], other, 0))

    def receive(self, tensor: Any, other: int) -> None:
        self._done(self._group.recv([tensor], other, 0))

    def sum(self, tensor: Any) -> None:
        """Add up a tensor of all hosts in place."""
        options = self._backend.torch.distributed.AllreduceOptions()
        options.timeout = _PATIENCE
        self._done(self._group.allreduce([tensor], options))

    def _done(self, work: Any) -> None:
        work.wait(_PATIENCE)
        if self._backend.name == "nccl":  # its wait only orders streams
            self._backend.torch.cuda.synchronize(self._backend.device)


def backend(torch: Any, name: str, address: str, interface: str | None) -> Backend:
    """Return a backend.

    Raises:
        TachoscopeError: this host or its PyTorch has none of that name.
    """
    if name == "nccl":
        if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
            raise TachoscopeError("--backend nccl: PyTorch has no CUDA with NCCL here", fix="--backend gloo")
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # a link that hangs raises, and does not end this process
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        if interface:
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    return Backend(torch, name, address, interface)
