"""What the name of a kernel tells: its class, and for matrix kernels their precision and whether they use the matrix units."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.package_data import shipped

COMMUNICATION, MEMCPY, MEMSET, OTHER = "communication", "memcpy", "memset", "other"
MATRIX_CLASSES = ("gemm", "convolution", "attention")
UNKNOWN, NOT_APPLICABLE = "unknown", "not_applicable"


@cache
def _table() -> dict[str, Any]:
    return cast("dict[str, Any]", shipped("trace/events/kernel_classes.yaml"))


@cache
def _rules(about: str) -> list[tuple[str, re.Pattern[str]]]:
    """Return the patterns of a section of `kernel_classes.yaml`, in order."""
    if about == "tensor_cores":
        return [(answer, _any(_table()[about][answer]["patterns"])) for answer in ("yes", "no")]
    return [(entry.get("class", entry["name"]), _any(entry["patterns"])) for entry in _table()[about]]


def _any(patterns: list[str]) -> re.Pattern[str]:
    """Return a pattern for lower-case text: with re.IGNORECASE a search takes twice as long."""
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re.compile(re.sub(r"(?<!\\)[A-Z]", lambda letter: letter[0].lower(), joined))


@lru_cache(maxsize=100_000)
def class_of(name: str) -> str:
    """Return the class of a kernel by its name, `other` where no pattern of `kernel_classes.yaml` fits."""
    text = _without_arguments(name).lower()
    return next((found for found, pattern in _rules("classes") if pattern.search(text)), OTHER)


def is_communication(names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return for each name whether it is that of a kernel which moves data between devices, shape of `names`."""
    return np.array([class_of(name) == COMMUNICATION for name in names], dtype=bool)


@lru_cache(maxsize=100_000)
def tensor_cores_of(name: str) -> str:
    """Return `yes`, `no` or `unknown`, `not_applicable` for kernels that multiply no matrices."""
    return _matrix_fact(name, "tensor_cores")


@lru_cache(maxsize=100_000)
def precision_of(name: str) -> str:
    """Return the precision in which a matrix kernel multiplies (fp32, tf32, bf16, ...) or `unknown`, else `not_applicable`."""
    return _matrix_fact(name, "precisions")


def _matrix_fact(name: str, rules: str) -> str:
    if class_of(name) not in MATRIX_CLASSES:
        return NOT_APPLICABLE
    text = name.lower()
    return next((found for found, pattern in _rules(rules) if pattern.search(text)), UNKNOWN)


def _without_arguments(name: str) -> str:
    """Return a name without its arguments, which contain other kernels' types."""
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and place and name[place : place + 20] != "(anonymous namespace"[:20]:
            return name[:place]
    return name
