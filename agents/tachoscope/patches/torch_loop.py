"""Wraps the few functions of torch that every training loop goes through. Each wrapper calls the original whatever happens.

Wrapped: the iterator of `DataLoader`, `torch.autograd.backward` (that of a tensor calls it), all optimizers (by torch's own
global hooks), the outermost calls of models (`model_calls`), `nn.Module.train`/`eval`, and copies to the device once CUDA is in
use; what waits for other ranks is wrapped by `torch_collectives`, what saves and reads checkpoints by `torch_checkpoints`, what
compiles by `torch_compile`. No hook is put on any module: a hook would be pickled with the user's model.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Mapping
from threading import get_ident
from types import ModuleType
from typing import Any

from tachoscope.memory.watch import follow_worker
from tachoscope.patches import torch_checkpoints as checkpoint_patches
from tachoscope.patches import torch_collectives as collective_patches
from tachoscope.patches import torch_compile as compile_patches
from tachoscope.patches.wrap import Function, call_guarded, timed_as_phase, wrap
from tachoscope.sampling import loader_workers
from tachoscope.sampling.model_calls import ModelCalls
from tachoscope.timing import phases
from tachoscope.training.compiled_steps import Kind, gate, open_gates
from tachoscope.training.probe import Probe


def install(probe: Probe, torch: ModuleType) -> None:
    """Wrap torch for `probe`; called once a process."""
    open_gates(torch)
    models = ModelCalls(probe, torch)
    models.call = gate(Kind.CALL_MODEL, models.call, probe.stop_after_fault)  # type: ignore[method-assign]
    probe.report_models(models)
    _loaders(probe)
    _backward(probe, torch)
    _optimizers(probe)
    _modes(probe, torch)
    checkpoint_patches.install(probe, torch)
    compile_patches.install(probe)
    _copies(probe, torch)
    if torch.distributed.is_available():
        if probe.integrity is not None:
            watch_models(lambda: probe.integrity, torch)
        _rendezvous(probe, torch)
        collective_patches.install(probe, torch)


def _loaders(probe: Probe) -> None:
    from torch import is_grad_enabled
    from torch.utils.data import dataloader

    missing: Any = object()

    def next_of(original: Function) -> Function:
        def next_batch(self: Any) -> Any:
            if get_ident() != probe.thread_ident and not probe.in_watched_thread():
                return original(self)
            machine = probe.machine
            try:
                if is_grad_enabled():
                    machine.batch_begin(self)
                else:
                    machine.batch_begin_without_gradients(self)
            except Exception as error:
                probe.stop_after_fault(error)
            batch = missing
            try:
                batch = original(self)
                return batch
            finally:
                try:
                    if batch is missing:
                        machine.no_batch()
                    else:
                        if not machine.timeline.evaluating:
                            probe.loaders.batch_given(self, batch)
                        machine.batch_end(_samples_of(self), elements_of(batch))
                except Exception as error:
                    probe.stop_after_fault(error)

        def first_batch(iterator: Any, batch: object) -> int:
            probe.loaders.batch_given(iterator, batch)
            return _samples_of(iterator)

        return gate(Kind.NEXT_BATCH, next_batch, probe.stop_after_fault, original, first_batch=first_batch, elements_of=elements_of)

    wrap(dataloader._BaseDataLoaderIter, "__next__", next_of)
    _workers(probe, dataloader)
    # Starting the workers of an epoch is waiting for data too.
    wrap(dataloader.DataLoader, "__iter__", functools.partial(timed_as_phase, probe, phases.DATA_WAIT))


def _workers(probe: Probe, dataloader: ModuleType) -> None:
    """Let each forked loader worker sample itself."""

    def opened(original: Function) -> Function:
        def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
            with contextlib.suppress(OSError):
                if probe.on:
                    loader_workers.LINES.open()
            original(*args, **kwargs)

        return __init__

    def sampled(original: Function) -> Function:
        @functools.wraps(original)  # a spawned worker finds it by its name
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            sampler = None
            with contextlib.suppress(Exception):
                sampler = (
                    loader_workers.WorkerSampler(also=follow_worker()) if probe.on and loader_workers.LINES.inherited else None
                )
            try:
                return original(*args, **kwargs)
            finally:
                if sampler is not None:
                    with contextlib.suppress(Exception):  # it is about to end
                        sampler.stop()

        return _worker_loop

    wrap(dataloader._MultiProcessingDataLoaderIter, "__init__", opened)
    wrap(dataloader._utils.worker, "_worker_loop", sampled)


def _samples_of(iterator: Any) -> int:
    """Return the samples in each batch of a loader's iterator; 0: it does not say."""
    return getattr(getattr(iterator, "_index_sampler", None), "batch_size", 0) or 0


_SEQUENCES = (list, tuple)


def elements_of(batch: object) -> int:
    """Return how many numbers the first tensor of a batch has, without reading any; 0: it has none. About half a microsecond."""
    for _ in range(3):
        if isinstance(batch, _SEQUENCES):
            batch = batch[0] if batch else None
        elif hasattr(batch, "numel"):
            return int(batch.numel())
        elif isinstance(batch, Mapping) and batch:
            batch = next(iter(batch.values()))
        else:
            return 0
    return 0


def _backward(probe: Probe, torch: ModuleType) -> None:
    from torch.compiler import is_compiling

    def backward_of(original: Function) -> Function:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            if get_ident() != probe.thread_ident and not probe.in_watched_thread():
                call_guarded(probe, probe.gradients_elsewhere)
                if get_ident() != probe.thread_ident:
                    return original(*args, **kwargs)
            try:
                probe.machine.backward_begin()
                if probe.integrity is not None:
                    probe.integrity.loss_seen(args[0] if args else kwargs.get("tensors"))
            except Exception as error:
                probe.stop_after_fault(error)
            try:
                return original(*args, **kwargs)
            finally:
                try:
                    probe.machine.backward_end()
                except Exception as error:
                    probe.stop_after_fault(error)

        return gate(Kind.BACKWARD, backward, probe.stop_after_fault, original)

    wrap(torch.autograd, "backward", backward_of)


def _optimizers(probe: Probe) -> None:
    from torch.compiler import is_compiling
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG001
        try:
            if is_compiling() or (get_ident() != probe.thread_ident and not probe.in_watched_thread()):
                return None
            closure = kwargs.get("closure", args[1] if len(args) > 1 else None) if kwargs or len(args) > 1 else None
            if not callable(closure):
                probe.machine.optimizer_begin()
                return None
            # Forward and backward run inside the step: so does Lightning, and so must LBFGS.
            probe.machine.optimizer_begin(with_closure=True)
            closure = functools.wraps(closure)(_closure(probe, closure))
            return (args, {**kwargs, "closure": closure}) if "closure" in kwargs else ((args[0], closure, *args[2:]), kwargs)
        except Exception as error:
            probe.stop_after_fault(error)
            return None

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        try:
            if is_compiling() or (get_ident() != probe.thread_ident and not probe.in_watched_thread()):
                return
            if probe.integrity is not None:
                probe.integrity.optimizer_stepped(optimizer)
            probe.machine.optimizer_end(optimizer)
        except Exception as error:
            probe.stop_after_fault(error)

    register_optimizer_step_pre_hook(gate(Kind.BEFORE_OPTIMIZER, before, probe.stop_after_fault))
    register_optimizer_step_post_hook(gate(Kind.AFTER_OPTIMIZER, after, probe.stop_after_fault))


def _closure(probe: Probe, original: Function) -> Function:
    def closure(*args: Any, **kwargs: Any) -> Any:
        if not probe.in_watched_thread():
            return original(*args, **kwargs)
        call_guarded(probe, probe.machine.closure_begin)
        try:
            return original(*args, **kwargs)
        finally:
            call_guarded(probe, probe.machine.closure_end)

    return closure


def _modes(probe: Probe, torch: ModuleType) -> None:
    def train_of(original: Function) -> Function:
        def train(self: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002  # torch's own signature
            if probe.on and get_ident() == probe.thread_ident:
                call_guarded(probe, probe.machine.mode_changed, training=bool(mode))
            return original(self, mode)

        return train

    wrap(torch.nn.Module, "train", train_of)


def _rendezvous(probe: Probe, torch: ModuleType) -> None:
    """Time how long the process waits for its peers to come; `init_device_mesh` calls the name that it imported."""

    def init_of(original: Function) -> Function:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            begin = time.monotonic()
            try:
                return original(*args, **kwargs)
            finally:
                probe.rendezvous_seconds += time.monotonic() - begin

        return init_process_group

    for owner in (torch.distributed, torch.distributed.distributed_c10d, sys.modules.get("torch.distributed.device_mesh")):
        wrap(owner, "init_process_group", init_of)


def _copies(probe: Probe, torch: ModuleType) -> None:
    """Time copies to the device, between the batch and backward; wrapped only where there can be a device."""
    if torch.version.cuda is None and torch.version.hip is None:
        return
    from torch.compiler import is_compiling

    def timed(original: Function, is_copy: Callable[[tuple[Any, ...], dict[str, Any]], bool]) -> Function:
        def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or probe.machine.device is None or self.is_cuda or not is_copy(args, kwargs):
                return original(self, *args, **kwargs)
            before = call_guarded(probe, probe.machine.copy_begin) if probe.in_watched_thread() else None
            try:
                return original(self, *args, **kwargs)
            finally:
                if before is not None:
                    call_guarded(probe, probe.machine.copy_end, before)

        return copy

    def names_a_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether arguments of `to` name an accelerator, and not only a type, or the host."""
        target = kwargs.get("device", args[0] if args else kwargs.get("other"))
        if isinstance(target, torch.Tensor):
            return bool(target.is_cuda)
        return isinstance(target, int) or str(target).startswith("cuda")

    wrap(torch.Tensor, "to", lambda original: timed(original, names_a_device))
    wrap(torch.Tensor, "cuda", lambda original: timed(original, lambda *_: True))


def watch_models(checks_of: Any, torch: Any) -> None:
    """Check each `DistributedDataParallel` created from now on, if `checks_of()` then returns checks."""

    def init_of(original: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            checks = checks_of()
            if checks is not None:
                checks.add(self)

        return init

    wrap(torch.nn.parallel.DistributedDataParallel, "__init__", init_of)
