"""Names of kernels without what changes from one build, shape or device to the next, so that the same work can be recognised."""

from __future__ import annotations

import re
from functools import lru_cache

from tachoscope_analyzers.trace.events.collective_names import collective_kind
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION, class_of

_LONGEST = 4_000
_DETAILS = (
    # Architectures: https://github.com/NVIDIA/cutlass/blob/main/media/docs/cpp/profiler.md, https://rocm.docs.amd.com (gfx targets)
    re.compile(r"\b(kepler|maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell)_"),
    re.compile(r"(?<![a-z0-9])(sm_?\d+[a-z]?|gfx[0-9a-f]{3,4}|cutlass(_\d+)?|cijk(?=_)|xmma(_new)?)(?![a-z0-9])"),
    re.compile(r"(?<![a-z0-9])(\d+x)+\d+(?![a-z0-9])"),  # tiles
    re.compile(r"(?<![a-z0-9])(mt|mi|wg|stages?|tilesize|align|ldg|sw|split[k]?|warps?|ws)_?\d[\dx]*(?![a-z])"),
    re.compile(r"(?<![a-z0-9])(\d+d[ec]?)+(\d+(?:de?)?)*(?![a-z0-9])"),  # Triton's list of divisible arguments
    re.compile(r"(?<![a-z0-9])\d+(u?ll?|ul)?(?![a-z0-9])"),
)
_BETWEEN = re.compile(r"[^a-z0-9]+")
_INSTANCE = re.compile(r"(?<=[a-z]{4})\d+$")
_HASH = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{6,}")
_PRECISIONS = re.compile(r"(bf16|f16|f32|f64|f8|e4m3|e5m2)+")


@lru_cache(1 << 15)
def without_details(name: str) -> str:
    """Return a name without architecture, tile sizes, hashes and numbers, template arguments kept; collectives by their kind."""
    if class_of(name) == COMMUNICATION:
        return f"communication {collective_kind(name)}"
    return _plain(_without_arguments(_demangled(name[:_LONGEST])))


@lru_cache(1 << 15)
def base_name(name: str) -> str:
    """Return the name of the function alone: as `without_details`, and without template arguments and namespaces."""
    if class_of(name) == COMMUNICATION:
        return f"communication {collective_kind(name)}"
    function = _without_brackets(_without_arguments(_demangled(name[:_LONGEST])))
    return _plain(function.rpartition("::")[2].rpartition(" ")[2])


@lru_cache(1 << 15)
def operator_name(name: str) -> str:
    """Return an operator's name without numbers, such as those of versions (`AddmmBackward0`) and of steps."""
    return re.sub(r"\d+", "", name[:_LONGEST])


def _plain(name: str) -> str:
    text = name.lower()
    for details in _DETAILS:
        text = details.sub("_", text)
    parts = [part for part in _BETWEEN.sub("_", text).split("_") if part and part != "void" and not _is_hash(part)]
    return " ".join(_INSTANCE.sub("", part) for part in parts)


def _is_hash(part: str) -> bool:
    return _HASH.fullmatch(part) is not None and _PRECISIONS.fullmatch(part) is None


def _demangled(name: str) -> str:
    """Return the identifiers of a mangled C++ name (_ZN2at6native...), joined; another name as it is.

    https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling: identifiers follow their length; `I` opens template arguments.
    """
    if not name.startswith("_Z"):
        return name
    found: list[str] = []
    position = 2
    while position < len(name):
        digits = re.compile(r"\d+").match(name, position)
        if digits is None:
            if found and name[position] in "IEv":
                break
            position += 1
            continue
        length = int(digits.group()[:4])
        text = name[digits.end() : digits.end() + length]
        position = digits.end() + max(length, 1)
        if text and not text.startswith("_GLOBAL__N"):
            found.append(text)
    return "::".join(found) or name


def _without_arguments(name: str) -> str:
    """Return a name up to the arguments of its function."""
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth <= 0 and place and not name.startswith("(anonymous namespace)", place):
            return name[:place]
    return name


def _without_brackets(name: str) -> str:
    kept, depth = [], 0
    for letter in name:
        depth += letter == "<"
        if depth <= 0:
            kept.append(letter)
        depth -= letter == ">" and depth > 0
    return "".join(kept).replace("(anonymous namespace)::", "")
