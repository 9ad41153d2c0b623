"""Which files are the traces of a job: files, directories and patterns."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.trace_names import SUFFIXES as SUFFIXES

PATTERN_LETTERS = "*?["
_HANDLERS_NAME = re.compile(r"(?P<process>.+_[0-9]+)\.[0-9]{10,}\.pt\.trace\.json(\.gz)?")
# https://github.com/pytorch/pytorch/blob/main/torch/profiler/profiler.py, tensorboard_trace_handler


def trace_files(inputs: Iterable[Path | str]) -> tuple[list[Path], frozenset[Path]]:
    """Return the files that the inputs name, in order of name, each once, and which of them were named one by one.

    A directory stands for all traces in and below it, a pattern (`runs/*/rank*.json.gz`, `**` too) for what it matches.

    Raises:
        TachoscopeError: an input does not exist or holds no trace.
    """
    found: dict[Path, None] = {}
    named: set[Path] = set()
    for item in inputs:
        path = Path(item)
        if path.is_dir():
            matches = _below(path)
        elif path.exists():
            matches = [path]
            named.add(path)
        elif any(letter in str(item) for letter in PATTERN_LETTERS):
            matches = sorted(file for text in glob.glob(str(item), recursive=True) for file in _files_of(Path(text)))
        else:
            raise TachoscopeError(
                f"{path} does not exist", fix="name trace files, a directory of them, or a pattern such as 'runs/*.json.gz'"
            )
        if not matches:
            raise TachoscopeError(f"{path} contains no trace", fix=f"traces end with {', '.join(SUFFIXES)}")
        found.update(dict.fromkeys(matches))
    return sorted(found), frozenset(named)


def stem(path: Path) -> str:
    """Return a file's name without the endings that traces have; further dots are of the name."""
    name = path.name
    for suffix in (".gz", ".zst", ".json", ".sqlite", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name


def labels(files: Iterable[Path]) -> dict[Path, str]:
    """Return a name for each file that no other has: its stem, where that is not enough its path below what all have in common."""
    chosen = list(files)
    count = Counter(map(stem, chosen))
    common = os.path.commonpath([path.absolute().parent for path in chosen]) if chosen else ""
    return {path: stem(path) if count[stem(path)] == 1 else str(path.absolute().relative_to(common)) for path in chosen}


def recorder(path: Path) -> str:
    """Return the process that `tensorboard_trace_handler` names in a file's name (`host_pid.time.pt.trace.json`), "" for others."""
    match = _HANDLERS_NAME.fullmatch(path.name)
    return match["process"] if match else ""


def _files_of(path: Path) -> list[Path]:
    return _below(path) if path.is_dir() else [path]


def _below(folder: Path) -> list[Path]:
    inside = (path for path in folder.rglob("*") if path.name.endswith(SUFFIXES))
    return sorted(
        path for path in inside if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
