"""Why a tar file ended: Python's `tarfile` takes a header that is cut or damaged for the end of the archive, and raises nothing."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_NAME = "_tachoscope_broken"
_broken: dict[int, list[Exception]] = {}
"""Where to note what is wrong, by the id of the stream, of those that are read now."""


def watch(module: ModuleType) -> None:
    """Let a module open its archives so that `noting_truncation` learns of their ends."""
    if getattr(module, "tarfile", None) is tarfile:
        module.tarfile = _Tarfile()  # type: ignore[attr-defined]


@contextlib.contextmanager
def noting_truncation(stream: Any) -> Iterator[list[Exception]]:
    """Add to the list what is wrong at the end of the archive read from this stream."""
    broken = _broken[id(stream)] = []
    try:
        yield broken
    finally:
        _broken.pop(id(stream), None)


class _Member(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Any:
        try:
            return super().fromtarfile(tar)
        # Not an archive that ends where a header could begin: those put together without an end marker are whole.
        except (tarfile.TruncatedHeaderError, tarfile.InvalidHeaderError) as error:  # type: ignore[attr-defined]
            # Another one, without a traceback: that would keep the archive in memory.
            getattr(tar, _NAME, []).append(type(error)(*error.args))
            raise


class _Tarfile:
    """Python's `tarfile` for one module; only the archives that this module opens, and that are watched, differ."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tarfile, name)

    def open(self, *args: Any, **kwargs: Any) -> tarfile.TarFile:
        broken = _broken.get(id(kwargs.get("fileobj")))
        if broken is None:
            return tarfile.open(*args, **kwargs)
        tar = tarfile.open(*args, **{"tarinfo": _Member} | kwargs)  # noqa: SIM115  # the caller's, as it is without this
        setattr(tar, _NAME, broken)
        return tar
