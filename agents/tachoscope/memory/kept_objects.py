"""Which lines of the job allocated what is still held, of all that was allocated since `tracemalloc` was started.

`tracemalloc` knows the bytes of what Python and NumPy allocate. The numbers of a tensor, and a shared memory block, lie elsewhere:
of them it knows the small object that owns them, and the object says how many bytes they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

from tachoscope.sampling.stacks import user_place

MOST_FRAMES = 10
"""From the line that allocates to that of the job: a call of a model has several between."""
MOST_BLOCKS = 5_000_000
"""Of the interpreter, beyond which tensors and memory maps are not looked for."""

Frames = Sequence[tuple[str, int]]
"""Path and line of each frame, the innermost first, as `tracemalloc` keeps them."""


class HeldBlocks(NamedTuple):
    """What was allocated since tracing began and is held, as it is found: to make more of it while all is traced takes long.

    Attributes:
        traces: tuples of domain, size, frames, ... owners: of each tensor and memory map where it was made, and its bytes.
    """

    traces: list[tuple[int, int, Frames, int]]
    owners: list[tuple[Frames, int]]


@dataclass(frozen=True, slots=True)
class KeptObjects:
    """What is held of what was allocated since tracing began.

    Attributes:
        bytes: by line. tensors: by line, the number of small objects that are as large as that of a tensor.
    """

    bytes: Counter[str] = field(default_factory=Counter)
    tensors: Counter[str] = field(default_factory=Counter)


def held_blocks(*, owners: bool) -> HeldBlocks:
    """Return what is held now, while allocations are traced; about half a microsecond for each block and object of Python.

    Args:
        owners: look for tensors and memory maps. It touches all objects: in a forked process that would copy the pages that it
            shares.
    """
    # The list that `Snapshot.traces` wraps: one tuple of frames for all blocks of a place, and no object for each block.
    traces = tracemalloc.take_snapshot().traces._traces  # type: ignore[attr-defined]
    return HeldBlocks(traces, [(made_at, size) for one, size in _owners() if (made_at := _made_at(one))] if owners else [])


def kept_objects(held: HeldBlocks) -> KeptObjects:
    """Return the same by line; call it once allocations are not traced any more."""
    found = KeptObjects()
    sizes: Counter[int] = Counter()
    tensors: Counter[int] = Counter()
    frames: dict[int, Frames] = {}
    of_tensor = _tensor_block_bytes()
    for _, size, made_at, *_ in held.traces:
        sizes[id(made_at)] += size
        tensors[id(made_at)] += size == of_tensor
        frames[id(made_at)] = made_at
    for key, size in sizes.items():
        place = user_place(frames[key])
        found.bytes[place] += size
        found.tensors[place] += tensors[key]
    for made_at, size in held.owners:
        found.bytes[user_place(made_at)] += size
    del found.bytes[""], found.tensors[""]  # of the probe itself
    return found


def grown_lines(before: KeptObjects, after: KeptObjects, grown_bytes: float) -> dict[str, float]:
    """Return the bytes by line that came in between and stayed, the most first.

    Args:
        grown_bytes: by which the process grew. What no object explains is given to the line that made the most tensors that stayed:
            a graph keeps what gradients will need, of which Python knows nothing.
    """
    lines = {line: float(size - before.bytes[line]) for line, size in after.bytes.items() if size > before.bytes[line]}
    unexplained = grown_bytes - sum(lines.values())
    tensors = after.tensors - before.tensors
    if tensors and unexplained > 0.5 * grown_bytes:
        line, _ = tensors.most_common(1)[0]
        lines[line] = lines.get(line, 0.0) + unexplained
    return dict(sorted(lines.items(), key=lambda row: -row[1]))


def _tensor_block_bytes() -> int:
    """Return the bytes of the small object that owns a tensor; -1 without torch."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return int(tensor.__basicsize__) + _BEFORE_OBJECT_BYTES if tensor is not None else -1


def _owners() -> Iterator[tuple[Any, int]]:
    """Yield each tensor in host memory, those that share numbers once, and each memory map, with its bytes."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    seen: set[int] = set()
    for one in _objects_of([mmap.mmap, *(_with_subclasses(tensor) if tensor is not None else ())]):
        if type(one) is mmap.mmap:
            with contextlib.suppress(ValueError):  # closed
                yield one, len(one)
            continue
        with contextlib.suppress(Exception), _own_functions(torch):  # one without storage, such as of a trace
            if one.device.type == "cpu" and (storage := one.untyped_storage())._cdata not in seen:
                seen.add(storage._cdata)
                yield one, storage.nbytes()


def _objects_of(kinds: Sequence[type[Any]]) -> list[Any]:
    """Return the objects of these types and no subclasses.

    In calls that do not release the interpreter's lock: else the job would run while the list of all objects holds each of
    them, and what it lets go of meanwhile would be finalised by this thread. And none runs code of a class: not `isinstance`, no
    hash of a type. None where there are too many: the list and the pause would be long.
    """
    if sys.getallocatedblocks() > MOST_BLOCKS:
        return []
    wanted = frozenset(map(id, kinds))
    objects = gc.get_objects()
    found = list(compress(objects, map(wanted.__contains__, map(id, map(type, objects)))))
    del objects
    return found


def _own_functions(torch: Any) -> AbstractContextManager[Any]:
    """Return a context in which a subclass of tensors is asked as a tensor, without its `__torch_function__`."""
    off = getattr(getattr(torch, "_C", None), "DisableTorchFunctionSubclass", None)
    return off() if off is not None else contextlib.nullcontext()


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    below: type[Any]
    for below in type.__subclasses__(kind):
        yield from _with_subclasses(below)


_BEFORE_OBJECT_BYTES = 32
"""What the collector and a dictionary take in front of an object that has both, such as a tensor, in Python 3.11 and later."""


def _made_at(one: object) -> Frames:
    """Return where an object was made; empty: before tracing began."""
    made_at = tracemalloc.get_object_traceback(one)
    if made_at is not None:
        return [(frame.filename, frame.lineno) for frame in reversed(made_at)]
    if sys.version_info >= (3, 12):
        return ()
    # Python 3.11 looks for such an object in the wrong place.
    traceback_of = ctypes.pythonapi._PyTraceMalloc_GetTraceback
    traceback_of.restype, traceback_of.argtypes = ctypes.py_object, (ctypes.c_uint, ctypes.c_size_t)
    found: Frames | None = traceback_of(0, id(one) - _BEFORE_OBJECT_BYTES)
    return found or ()
