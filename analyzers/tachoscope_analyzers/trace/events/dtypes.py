"""Bytes of an element, by the type's name in PyTorch, NCCL or CUDA."""

from __future__ import annotations

import re
from functools import cache

from tachoscope_analyzers.data.package_data import shipped

_NAMESPACE = re.compile(r"\w+::|torch\.")


@cache
def _sizes() -> dict[str, int]:
    return {name: int(size) for size, names in shipped("trace/events/dtypes.yaml").items() for name in names}


def element_bytes(dtype: str) -> int:
    """Return the size of an element in bytes, -1 for a type that is not known; takes the names of PyTorch, C++ and numpy."""
    return _sizes().get(_NAMESPACE.sub("", dtype).lower(), -1)
