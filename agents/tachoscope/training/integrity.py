"""Opt-in checks that the numbers of the training are still numbers, and a checksum by which replicas are compared later.

Every so many steps the parameters are read once. No collective is added: each rank records its own checksum and the analyzers
compare those of the same step, so that a rank which is one step off can never hang the job for the sake of a check. The checksum
adds up the bits of the parameters: one changed element always changes it, and it comes out alike on every device. A check waits for
the device.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tachoscope import guard

EVERY = 100
VARIABLE = "TACHOSCOPE_INTEGRITY_EVERY"

_MULTIPLIER = 1_099_511_628_211
"""FNV-1a's prime (http://www.isthe.com/chongo/tech/comp/fnv/): sums of different tensors cannot stand in for one another."""
_MODULUS = 1 << 64
_RECENT_LOSSES = 20


def from_environment(environ: Mapping[str, str]) -> Checks | None:
    """Return the checks that `$TACHOSCOPE_INTEGRITY_EVERY` asks for, in steps; None where it asks for none."""
    text = environ.get(VARIABLE, "")
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        guard.print_line(f"{VARIABLE}={text!r} is not a number of steps: no integrity checks")
        return None
    return Checks(int(text))


class Checks:
    """What to look at, and every how many steps."""

    def __init__(self, every: int = EVERY) -> None:
        self.every = every
        self._models: weakref.WeakKeyDictionary[Any, tuple[int, ...]] = weakref.WeakKeyDictionary()
        self._optimizer: weakref.ref[Any] | None = None
        self._loss: Any = None
        self._bad_losses = 0
        self._losses: deque[float] = deque(maxlen=_RECENT_LOSSES)
        self._broken = False

    def add(self, model: Any, replicas: Sequence[int] | None = None) -> None:
        """Look at a model.

        Args:
            replicas: global ranks that hold the same parameters; None: those of DistributedDataParallel, if it is one.
        """
        self._models[model] = tuple(_replicas(model) if replicas is None else replicas)

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Look at the parameters of this optimizer where no model was given."""
        self._optimizer = weakref.ref(optimizer)

    def loss_seen(self, tensors: Any) -> None:
        """Keep the value of the loss that gradients are computed of; neither its graph is kept nor a large tensor."""
        first = tensors[0] if isinstance(tensors, list | tuple) and tensors else tensors
        self._loss = first.detach() if hasattr(first, "detach") and first.numel() == 1 else None
        if self._loss is not None and self._loss.device.type == "cpu":  # elsewhere the value would have to be waited for
            value = float(self._loss)
            self._bad_losses = 0 if math.isfinite(value) else self._bad_losses + 1
            if not self._bad_losses:
                self._losses.append(value)

    def due(self, step: int) -> bool:
        """Return whether to look after this step: every so many, and once where a loss in the host's memory was not finite.

        One step later the exchange of gradients has spread it to all ranks, and nobody can tell any more where it began.
        """
        return step % self.every == 0 or self._bad_losses == 1

    def run(self) -> dict[str, Any] | None:
        """Return the fields of an `IntegrityEvent`, or None without parameters. Faults end the checks and are not raised."""
        if self._broken:
            return None
        try:
            return self._check()
        except Exception as error:
            if guard.is_of_the_job(error):
                raise
            self._broken = True
            guard.print_line(f"no more integrity checks: {type(error).__name__}: {error}")
            return None

    def _check(self) -> dict[str, Any] | None:
        begin = time.monotonic()
        parameters = list(self._parameters())
        if not parameters:
            return None
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        loss, self._loss = self._loss, None
        bad = {
            "loss": not_finite([loss] if loss is not None else []),
            "gradients": not_finite(gradients),
            "parameters": not_finite(parameters),
        }
        return {
            "check": "parameters",
            "not_finite": [name for name, count in bad.items() if count],
            "detail": ", ".join(f"NaN or Inf in {count} tensors of the {name}" for name, count in bad.items() if count),
            "checksum": checksum(parameters),
            "replicas": sorted(set().union(*self._models.values())) if self._models else [],
            "loss_growth": _growth(self._losses),
            "seconds": time.monotonic() - begin,
        }

    def _parameters(self) -> Iterator[Any]:
        if self._models:
            for model in self._models:
                yield from (_local(parameter) for parameter in model.parameters())
        elif self._optimizer is not None and (optimizer := self._optimizer()) is not None:
            for group in optimizer.param_groups:
                yield from (_local(parameter) for parameter in group["params"])


def _growth(losses: Sequence[float]) -> float:
    """Return the last loss over the median of all; 0 where that says nothing."""
    usual = statistics.median(losses) if losses else 0.0
    return losses[-1] / usual if usual > 0 else 0.0


def _local(parameter: Any) -> Any:
    """Return this rank's part of a parameter that is sharded over ranks."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _replicas(model: Any) -> Sequence[int]:
    """Return the global ranks that DistributedDataParallel keeps identical; empty for other models."""
    parallel = sys.modules.get("torch.nn.parallel")
    if parallel is None or not isinstance(model, parallel.DistributedDataParallel):
        return ()
    distributed = sys.modules["torch.distributed"]
    return list(distributed.get_process_group_ranks(model.process_group))


def not_finite(tensors: Iterable[Any]) -> int:
    """Return how many of the tensors hold NaN or Inf. `aminmax` passes NaN on and needs no memory of the tensor's size."""
    import torch

    extremes = [torch.aminmax(tensor.detach()) for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    if not extremes:
        return 0
    values = torch.stack([value.double() for pair in extremes for value in pair]).tolist()
    return sum(not math.isfinite(low + high) for low, high in zip(values[::2], values[1::2], strict=True))


def checksum(tensors: Iterable[Any]) -> str:
    """Return 16 hexadecimal digits that depend on every bit of the tensors and on their order, alike on every device."""
    import torch

    sums = [_sum_of_bits(torch, tensor.detach()) for tensor in tensors if tensor.numel()]
    total = 0
    for value in torch.stack(sums).tolist() if sums else []:
        total = (total * _MULTIPLIER + value) % _MODULUS
    return f"{total:016x}"


def _sum_of_bits(torch: Any, tensor: Any) -> Any:
    """Return the sum of a tensor's bits modulo 2^64, eight bytes at a time where its layout allows: 20 times as fast."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    size = tensor.element_size()
    if tensor.is_contiguous() and tensor.storage_offset() * size % 8 == 0 and tensor.numel() * size % 8 == 0:
        return tensor.reshape(-1).view(torch.int64).sum()
    of_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(of_size[size]).sum(dtype=torch.int64)
