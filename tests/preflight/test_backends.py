"""What carries exchanges and tasks: NCCL goes the way of gloo, and a host that ends is missed by its beats.

Only what NVIDIA's libraries do is a fake here, on gloo and the CPU.
"""

from __future__ import annotations

import concurrent.futures
import os
import socket
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_preflight.repeat import Effort
from tachoscope_preflight.together import exchange, meeting
from tachoscope_preflight.together.backends import backend
from tachoscope_preflight.together.meeting import Answer, Meeting
from tachoscope_preflight.together.places import Seat

torch = pytest.importorskip("torch")


class FakeTorch:
    """PyTorch with a GPU: its tensors are the CPU's, and NCCL is gloo. `synchronized`: how often someone waited for the GPU."""

    def __init__(self) -> None:
        self.synchronized = 0
        self.cuda = SimpleNamespace(is_available=lambda: True, get_device_name=lambda _: "H200", synchronize=self._synchronize)
        names = ("PrefixStore", "AllreduceOptions")
        self.distributed = SimpleNamespace(
            is_nccl_available=lambda: True,
            ProcessGroupNCCL=self._group,
            **{name: getattr(torch.distributed, name) for name in names},
        )
        self._group.Options = SimpleNamespace

    class _group:  # noqa: N801
        Options: Any

        def __new__(cls, store: Any, rank: int, size: int, options: Any) -> Any:
            assert options._timeout > timedelta(0)
            return backend(torch, "gloo", "127.0.0.1", None).group(store, rank, size)._group

    def _synchronize(self, device: str) -> None:
        assert device == "cuda:0"
        self.synchronized += 1

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        if name not in {"ones", "zeros", "tensor"}:
            return found

        def made(*words: Any, device: str, **more: Any) -> Any:
            assert device == "cuda:0"
            return found(*words, **more)

        return made


def test_a_pair_and_a_ring_go_over_nccl_from_gpu_to_gpu_by_the_code_of_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_QUICK_EFFORT", Effort(0.01, 3))
    for name in ("TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING"):
        monkeypatch.setitem(os.environ, name, "1")
    store = torch.distributed.HashStore()
    fake = FakeTorch()
    line = exchange.Line(backend(fake, "nccl", "127.0.0.1", None), quick=True)
    with concurrent.futures.ThreadPoolExecutor(2) as hosts:
        pairs = [hosts.submit(exchange.pair, line, store, "pair", f"h{rank}", f"h{1 - rank}", first=rank == 0) for rank in (0, 1)]
        [one], [other] = (pair.result() for pair in pairs)
        rings = [hosts.submit(exchange.ring, line, store, "ring", rank, 2) for rank in (0, 1)]
        rates = [ring.result() for ring in rings]

    assert (one.error, other.error) == ("", "")
    assert all((found.bytes_per_second or 0) > 0 and (found.round_trips_per_second or 0) > 0 for found in (one, other))
    assert min(rates) > 0
    assert line.backend.comparable_with == "nccl, H200"
    assert fake.synchronized > 0


def test_nccl_without_cuda_is_misuse_that_names_the_way_out() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    with pytest.raises(TachoscopeError, match="no CUDA with NCCL here.*--backend gloo"):
        backend(torch, "nccl", "127.0.0.1", None)


def test_a_host_that_ended_is_not_waited_for_as_long_as_one_that_only_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(meeting, "_BEAT_SECONDS", 1e6)  # it beats once, as one that then ends
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first, other = (Meeting(torch, Seat(rank, 2, "127.0.0.1", port, listens=rank == 0), 60.0) for rank in (0, 1))

    other.join("host1")
    other.answer(0, Answer(host="host1"))

    assert (first.joined([1], 60.0), first.answers(0, [1], 60.0)) == ({1: "host1"}, {1: Answer(host="host1")})
    assert first.answers(1, [1], 1e6) == {}
