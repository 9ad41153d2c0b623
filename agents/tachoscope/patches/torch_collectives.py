"""Wraps the functions of `torch.distributed` that wait for other ranks, and what tells at whom a point-to-point call is aimed.

`isend` and `irecv` themselves stay as they are, since `P2POp` compares them by identity: what they call is wrapped, the process
group's `send` and `recv`, and `Work.wait`. Summed up are only calls on tensors of the host: others return before they are done.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tachoscope.patches.wrap import Function, wrap
from tachoscope.timing import phases
from tachoscope.training.collectives import NOBODY, Key, size_class
from tachoscope.training.probe import Probe
from tachoscope_core.records.group_names import group_name

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
)
_POINT_TO_POINT = ("send", "recv")
_TAKE_THEIR_COLLECTIVES = (phases.COLLECTIVE, phases.CHECKPOINT)
"""Phases that such a call within them belongs to: waiting for another rank's part of a checkpoint is the checkpoint's time."""


def install(probe: Probe, torch: ModuleType) -> None:
    """Wrap `torch.distributed` for `probe`; called once a process."""
    from torch.distributed import ProcessGroup, Work

    groups = _Groups(torch)
    for name in COLLECTIVES:
        wrap(torch.distributed, name, _blocking(probe, name, _Reader(torch, groups)))
    for name in _POINT_TO_POINT:
        wrap(ProcessGroup, name, _aimed(probe, name, groups))
    wrap(Work, "wait", _waiting(probe))
    wrap(torch.nn.parallel.DistributedDataParallel, "__init__", _replicating(probe))


class _Groups:
    """Names and ranks of process groups, looked up once for each."""

    def __init__(self, torch: ModuleType) -> None:
        self._distributed = torch.distributed
        self._member = torch.distributed.GroupMember
        self._world: Any = None
        self._of_world: tuple[str, list[int]] = "", []
        self._known: weakref.WeakKeyDictionary[Any, tuple[str, list[int]]] = weakref.WeakKeyDictionary()

    def name_and_ranks(self, group: Any) -> tuple[str, list[int]]:
        """Return the name, empty for all ranks, and the global ranks of a process group; None is the one of all ranks."""
        if group is None:
            group = self._member.WORLD
            if group is self._world:  # most calls: a look into the dictionary costs more than all else here
                return self._of_world
            self._world, self._of_world = group, self.name_and_ranks(group)
            return self._of_world
        found = self._known.get(group)
        if found is None:
            ranks = list(self._distributed.get_process_group_ranks(group))
            found = self._known[group] = group_name(ranks, int(self._distributed.get_world_size())), ranks
        return found


class _Reader:
    """Reads off a call's arguments what it moves, and in which group."""

    def __init__(self, torch: ModuleType, groups: _Groups) -> None:
        self._tensor = torch.Tensor
        self._process_group = torch.distributed.ProcessGroup
        self._groups = groups

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, str, int] | None:
        """Return the bytes of the largest argument, which is all data in an all-gather as in a reduce-scatter, and the group's name
        and size; None for tensors of a device.
        """
        size, group = 0, None
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, self._tensor):
                if not value.is_cpu:
                    return None
                size = max(size, value.nbytes)
            elif isinstance(value, list) and value and isinstance(value[0], self._tensor):
                if not value[0].is_cpu:
                    return None
                size = max(size, sum(one.nbytes for one in value))
            elif isinstance(value, self._process_group):
                group = value
        called, ranks = self._groups.name_and_ranks(group)
        return size, called, len(ranks)


def _blocking(probe: Probe, name: str, reader: _Reader) -> Callable[[Function], Function]:
    """Account the call to `collective`, and add it to the sums."""
    from torch.compiler import is_compiling
    from torch.distributed import Work

    aimed = name in _POINT_TO_POINT

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            timeline, sums = probe.timeline, probe.collectives
            if is_compiling() or timeline.phase in _TAKE_THEIR_COLLECTIVES or not probe.begin_phase(phases.COLLECTIVE):
                return original(*args, **kwargs)
            begin = timeline.last
            sums.peer = NOBODY
            try:
                result = original(*args, **kwargs)
            finally:
                probe.end_phase()
            try:
                found = reader.read(args, kwargs)
                if found is not None:
                    size, called, ranks = found
                    peer = result if name == "recv" and isinstance(result, int) else sums.peer
                    key = Key(name, size_class(size), called, ranks, peer)
                    sums.add(key, count=1, size_bytes=size, nanoseconds=timeline.last - begin)
                    if isinstance(result, Work):
                        sums.begin_async(result, key)
                if aimed:
                    probe.machine.exchanged()
            except Exception as error:
                probe.stop_after_fault(error)
            return result

        return call

    return wrapper_of


def _aimed(probe: Probe, name: str, groups: _Groups) -> Callable[[Function], Function]:
    """Note the peer of a point-to-point call, and add asynchronous calls outside of blocking ones to the sums."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            work = original(*args, **kwargs)
            if (
                len(args) < 3 or not probe.in_watched_thread()
            ):  # torch gives all by position: group, tensors, rank in the group, tag
                return work
            try:
                group, tensors, peer = args[:3]
                called, ranks = groups.name_and_ranks(group)
                other = ranks[peer]
                probe.collectives.peer = other
                if probe.timeline.phase not in _TAKE_THEIR_COLLECTIVES and tensors[0].is_cpu:
                    size = sum(tensor.nbytes for tensor in tensors)
                    key = Key(name, size_class(size), called, len(ranks), other)
                    probe.collectives.add(key, count=1, size_bytes=size)
                    probe.collectives.begin_async(work, key)
            except Exception as error:
                probe.stop_after_fault(error)
            return work

        return call

    return wrapper_of


def _waiting(probe: Probe) -> Callable[[Function], Function]:
    """Account waiting for an asynchronous call to `collective`."""
    from torch.compiler import is_compiling

    def wrapper_of(original: Function) -> Function:
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            timeline = probe.timeline
            if is_compiling() or timeline.phase in _TAKE_THEIR_COLLECTIVES or not probe.begin_phase(phases.COLLECTIVE):
                return original(self, *args, **kwargs)
            begin = timeline.last
            try:
                return original(self, *args, **kwargs)
            finally:
                probe.end_phase()
                try:
                    if probe.collectives.waited(self, timeline.last - begin) in _POINT_TO_POINT:
                        probe.machine.exchanged()
                except Exception as error:
                    probe.stop_after_fault(error)

        return wait

    return wrapper_of


def _replicating(probe: Probe) -> Callable[[Function], Function]:
    """Note the bytes that a replicated model exchanges each step: its reducer bypasses Python."""

    def wrapper_of(original: Function) -> Function:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if not probe.on:
                return
            try:
                ignored = getattr(self, "parameters_to_ignore", ())
                exchanged = [one for name, one in self.module.named_parameters() if one.requires_grad and name not in ignored]
                probe.collectives.replicated(self, sum(parameter.nbytes for parameter in exchanged))
            except Exception as error:
                probe.stop_after_fault(error)

        return init

    return wrapper_of
