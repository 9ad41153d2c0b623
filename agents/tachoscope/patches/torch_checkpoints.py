"""Wraps what saves, reads and renames checkpoints: `torch.save` and `load`, safetensors, `torch.distributed.checkpoint`.

Frameworks call these within saves of their own, which the adapters wrap; the outermost call makes the record.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from tachoscope.checkpoints.checkpoint_name import reference_of
from tachoscope.checkpoints.save_nesting import CheckpointCall, json_files, size_of, written
from tachoscope.patches.wrap import Function, call_guarded, timed_as_phase, wrap
from tachoscope.process.import_hook import after_import
from tachoscope.timing import phases
from tachoscope.training.probe import Probe

NameOf = Callable[[Sequence[Any], Mapping[str, Any], Any], Any]
"""Tells from a call's arguments and its result what it saved to or read from: a path, a URL, or None."""


def install(probe: Probe, torch: ModuleType) -> None:
    """Wrap torch for `probe`; called once a process."""
    wrap(torch, "save", functools.partial(_saves_file, probe, argument("f", 1)))
    wrap(torch, "load", functools.partial(_loads_file, probe, argument("f", 0)))
    # A checkpoint that must survive a crash is flushed; nothing else makes a training thread wait for a disk to say "written".
    wrap(os, "fsync", functools.partial(timed_as_phase, probe, phases.CHECKPOINT))
    wrap(os, "fdatasync", functools.partial(timed_as_phase, probe, phases.CHECKPOINT))
    # pathlib and shutil call these.
    wrap(os, "rename", functools.partial(_renames, probe))
    wrap(os, "replace", functools.partial(_renames, probe))
    after_import("torch.distributed.checkpoint", functools.partial(_distributed_checkpoints, probe))
    after_import("torch.distributed.checkpoint.state_dict", functools.partial(_state_dicts, probe))
    after_import("safetensors.torch", functools.partial(_safetensors, probe))


def argument(name: str, position: int) -> NameOf:
    """Return a function that gives this argument of a call, or None if it was omitted."""

    def value(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:  # noqa: ARG001
        return kwargs.get(name, args[position] if len(args) > position else None)

    return value


def _safetensors(probe: Probe, module: Any) -> None:
    wrap(module, "save_file", functools.partial(_saves_file, probe, argument("filename", 1)))
    wrap(module, "load_file", functools.partial(_loads_file, probe, argument("filename", 0)))


def _renames(probe: Probe, original: Function) -> Function:
    def rename(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        original(source, target, *args, **kwargs)
        if probe.on and not args and not kwargs and isinstance(source, (str, bytes, os.PathLike)):
            call_guarded(probe, probe.checkpoints.renamed, source, target)

    return rename


# --- saving ------------------------------------------------------------------------------------------------------------------


def _within_save(probe: Probe, original: Function, args: Any, kwargs: Any, returned: Callable[[CheckpointCall, Any], None]) -> Any:
    call = call_guarded(probe, probe.checkpoints.save_begin)
    raised = True
    try:
        result = original(*args, **kwargs)
        if call is not None:
            call_guarded(probe, returned, call, result)
        raised = False
        return result
    finally:
        if call is not None:
            call_guarded(probe, probe.checkpoints.save_end, raised=raised)


def saving(probe: Probe, original: Function, *, name_of: NameOf = lambda *_: None) -> Function:
    """Wrap a function that saves by other calls: timed, with one record for all of them."""

    def save(*args: Any, **kwargs: Any) -> Any:
        if not probe.in_watched_thread():
            return original(*args, **kwargs)

        def returned(call: CheckpointCall, result: Any) -> None:
            call.reference = reference_of(name_of(args, kwargs, result)) or call.reference
            if probe.outbox.rank == 0:
                call.files += json_files(call.reference)

        return _within_save(probe, original, args, kwargs, returned)

    return save


def _saves_file(probe: Probe, target_of: NameOf, original: Function) -> Function:
    """Wrap a function that saves to a path or file object; from another thread only to a path."""

    def save(*args: Any, **kwargs: Any) -> Any:
        target = call_guarded(probe, target_of, args, kwargs, None)
        if not probe.in_watched_thread():
            return _save_in_background(probe, original, args, kwargs, target)
        before = call_guarded(probe, _position_of, target) or 0

        def returned(call: CheckpointCall, _: Any) -> None:
            call.took_part += 1
            call.bytes += max(0, size_of(target) - before)
            call.reference = call.reference or reference_of(target)
            if (file := written(target)) is not None:
                call.files.append(file)

        return _within_save(probe, original, args, kwargs, returned)

    return save


def _position_of(target: Any) -> int:
    return size_of(target) if hasattr(target, "tell") else 0


def _save_in_background(probe: Probe, original: Function, args: Any, kwargs: Any, target: Any) -> Any:
    """Save on another thread; with a file object it is part of a save recorded elsewhere."""
    began = time.monotonic()
    result = original(*args, **kwargs)
    if probe.on and probe.steps and isinstance(target, (str, os.PathLike)):
        call_guarded(probe, probe.checkpoints.saved_in_background, target, began)
    return result


def _distributed_checkpoints(probe: Probe, module: Any) -> None:
    save_of, load_of = functools.partial(_saves_distributed, probe), functools.partial(_loads_distributed, probe)
    for owner in (module, sys.modules.get("torch.distributed.checkpoint.state_dict_saver")):
        for name in ("save", "async_save", "save_state_dict"):
            wrap(owner, name, save_of)
    for owner in (module, sys.modules.get("torch.distributed.checkpoint.state_dict_loader")):
        for name in ("load", "load_state_dict"):
            wrap(owner, name, load_of)


def _saves_distributed(probe: Probe, original: Function) -> Function:
    def save(*args: Any, **kwargs: Any) -> Any:
        if not probe.in_watched_thread():
            return original(*args, **kwargs)
        around = probe.checkpoints.saves.current if probe.checkpoints.saves.depth else None
        bytes_before, files_before = (around.bytes, len(around.files)) if around is not None else (0, 0)

        def returned(call: CheckpointCall, result: Any) -> None:
            folder = reference_of(_folder(args, kwargs, "storage_writer"))
            call.took_part += 1
            # What it wrote by `torch.save` on the way are parts of its own files, which are counted when they are whole.
            call.bytes = bytes_before
            del call.files[files_before:]
            call.reference = call.reference or folder
            call.distributed = (folder, _rank_in_files(kwargs))
            completion = getattr(result, "upload_completion", result)
            if isinstance(completion, Future):
                call.completion = completion
                # Where the training thread waits for it, it stands still.
                completion.result = timed_as_phase(probe, phases.CHECKPOINT, completion.result)  # type: ignore[method-assign]

        return _within_save(probe, original, args, kwargs, returned)

    return save


def _folder(args: Sequence[Any], kwargs: Mapping[str, Any], storage: str) -> Any:
    """Return what a call of `torch.distributed.checkpoint` names, by itself or by its storage's reader or writer."""
    named = kwargs.get("checkpoint_id")
    if named is None:
        reader_or_writer = kwargs.get(storage, args[1] if len(args) > 1 else None)
        named = getattr(reader_or_writer, "checkpoint_id", None) or getattr(reader_or_writer, "path", None)
    return named


def _rank_in_files(kwargs: Mapping[str, Any]) -> int:
    distributed = sys.modules["torch.distributed"]
    if kwargs.get("no_dist") or not (distributed.is_available() and distributed.is_initialized()):
        return 0
    return int(distributed.get_rank(kwargs.get("process_group")))


# --- restoring -----------------------------------------------------------------------------------------------------------------


def _within_load(probe: Probe, original: Function, args: Any, kwargs: Any, returned: Callable[[CheckpointCall, Any], None]) -> Any:
    call = call_guarded(probe, probe.checkpoints.load_begin)
    try:
        result = original(*args, **kwargs)
        if call is not None:
            call_guarded(probe, returned, call, result)
        return result
    finally:
        if call is not None:
            call_guarded(probe, probe.checkpoints.load_end)


def loading(probe: Probe, original: Function, *, name_of: NameOf) -> Function:
    """Wrap a function that restores from what `name_of` returns: timed, with one record; None: it restores nothing."""

    def load(*args: Any, **kwargs: Any) -> Any:
        if not probe.on or not call_guarded(probe, probe.checkpoints.may_load):
            return original(*args, **kwargs)

        def returned(call: CheckpointCall, result: Any) -> None:
            if reference := reference_of(name_of(args, kwargs, result)):
                call.took_part += 1
                call.reference = reference

        return _within_load(probe, original, args, kwargs, returned)

    return load


def _loads_file(probe: Probe, target_of: NameOf, original: Function) -> Function:
    def load(*args: Any, **kwargs: Any) -> Any:
        if not probe.on or not call_guarded(probe, probe.checkpoints.may_load):
            return original(*args, **kwargs)
        target = call_guarded(probe, target_of, args, kwargs, None)

        def returned(call: CheckpointCall, result: Any) -> None:
            if probe.checkpoints.counts(result, target):
                call.took_part += 1
                call.bytes += size_of(reference_of(target)) or size_of(target)
                call.reference = call.reference or reference_of(target)

        return _within_load(probe, original, args, kwargs, returned)

    return load


def _state_dicts(probe: Probe, module: Any) -> None:
    wrap(module, "_init_optim_state", functools.partial(_makes_optimizer_state, probe))


def _makes_optimizer_state(probe: Probe, original: Function) -> Function:
    """Wrap the optimizer-state initialiser, whose dummy step is not a step of the job."""

    def make(*args: Any, **kwargs: Any) -> Any:
        if not probe.in_watched_thread():
            return original(*args, **kwargs)
        call_guarded(probe, probe.machine.optimizer_begin)  # what steps within it is nested
        try:
            return original(*args, **kwargs)
        finally:
            call_guarded(probe, probe.machine.optimizer_left)

    return make


def _loads_distributed(probe: Probe, original: Function) -> Function:
    def load(*args: Any, **kwargs: Any) -> Any:
        if not probe.on or not call_guarded(probe, probe.checkpoints.may_load):
            return original(*args, **kwargs)

        def returned(call: CheckpointCall, _: Any) -> None:
            call.took_part += 1
            call.bytes = _tensor_bytes(kwargs.get("state_dict", args[0] if args else None))  # each rank reads parts of files
            call.reference = reference_of(_folder(args, kwargs, "storage_reader"))

        return _within_load(probe, original, args, kwargs, returned)

    return load


def _tensor_bytes(state: Any) -> int:
    """Return the bytes of the tensors in a state dict; of one that several ranks share, what this rank has of it."""
    if isinstance(state, Mapping):
        return sum(map(_tensor_bytes, state.values()))
    tensor = getattr(state, "_local_tensor", state)
    return int(getattr(tensor, "nbytes", 0))
