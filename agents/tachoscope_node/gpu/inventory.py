"""The GPUs that were ever seen on this node, in a file: one that is lost keeps its name and its series, over a restart too."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from tachoscope_core.errors import not_written
from tachoscope_node.gpu.reading import Gpu


class _File(msgspec.Struct):
    most: int = 0
    gpus: list[Gpu] = []


class Inventory:
    """Whole GPUs by UUID, and how many there should be.

    Args:
        path: file in the agent's state directory; None: nothing outlives the process.
        expected: as configured, 0: the most that were ever seen at a time.
    """

    def __init__(self, path: Path | None, expected: int) -> None:
        self._path = path
        self._expected = expected
        file = _load(path)
        self._most = file.most
        self._gpus = {gpu.uuid: gpu for gpu in file.gpus}
        self._unsaved = False

    @property
    def expected(self) -> int:
        return self._expected or self._most

    def with_known_index(self, gpu: Gpu) -> Gpu:
        """Return the GPU with the index it had when first seen. Thread-safe."""
        before = self._gpus.get(gpu.uuid)
        return replace(gpu, index=before.index) if before else gpu

    def at(self, index: int) -> Gpu | None:
        """Return the GPU that was first seen at an index, where just one was."""
        found = [gpu for gpu in self._gpus.values() if gpu.index == index]
        return found[0] if len(found) == 1 else None

    def missing(self, present: Iterable[Gpu]) -> list[Gpu]:
        """Return the known GPUs that are not among those present, by index."""
        uuids = {gpu.uuid for gpu in present}
        return sorted((gpu for uuid, gpu in self._gpus.items() if uuid not in uuids), key=lambda gpu: gpu.index)

    def add_seen(self, gpus: Iterable[Gpu]) -> None:
        """Remember the GPUs that answered, and forget so many of the missing that no more are known than are expected.

        A GPU that another has replaced would else be missed for ever.

        Raises:
            TachoscopeError: the file cannot be written; what is known still holds for this process.
        """
        seen = {gpu.uuid: gpu for gpu in gpus}
        most = max(self._most, len(seen))
        missing = [gpu for uuid, gpu in self._gpus.items() if uuid not in seen]
        room = max((self._expected or most) - len(seen), 0)
        kept = missing[-room:] if room else []  # those seen last are at the end
        known = {gpu.uuid: gpu for gpu in kept} | seen
        self._unsaved = self._unsaved or known != self._gpus or most != self._most
        self._gpus, self._most = known, most
        if self._unsaved:
            self._save()

    def _save(self) -> None:
        if self._path is None:
            self._unsaved = False
            return
        temporary = self._path.with_name(f".{self._path.name}.partial")
        try:
            temporary.write_bytes(msgspec.json.encode(_File(self._most, list(self._gpus.values()))))
            os.replace(temporary, self._path)
            self._unsaved = False
        except OSError as error:
            raise not_written(self._path, error) from None


def _load(path: Path | None) -> _File:
    """Return the file's content; empty if it is absent or damaged."""
    if path is None:
        return _File()
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError):
        return _File()
