"""Readers of what schedulers say of a job: Slurm's `sacct`, and the objects and events of Kubernetes and its queues.

`read` is the way in; it tells by the content of a file who wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_analyzers.schedulers.kubernetes import jobs as kubernetes
from tachoscope_analyzers.schedulers.kubernetes import objects
from tachoscope_analyzers.schedulers.slurm import allocations as slurm
from tachoscope_analyzers.schedulers.slurm import sacct_json as slurm_json
from tachoscope_analyzers.schedulers.slurm import sacct_table
from tachoscope_core.errors import TachoscopeError

_WAYS = "give the output of `sacct -j JOBID --duplicates --json` (or `--parsable2`), or of `kubectl get ... --output json`"


def read(paths: Iterable[Path]) -> list[Allocation]:
    """Return the allocations of all jobs in the files, those of a job in the order of time.

    Objects of Kubernetes are put together over all files: pods in one, their job or events in another.

    Args:
        paths: files, or directories of which all `.json` and `.txt` files are read.

    Raises:
        TachoscopeError: a file cannot be read, or is not an output of a scheduler.
    """
    files = [file for path in paths for file in (_of_directory(path) if path.is_dir() else [path])]
    return read_texts((str(file), _content(file)) for file in files)


def read_texts(contents: Iterable[tuple[str, str]]) -> list[Allocation]:
    """Return the allocations in contents of files, each with the name that errors give it.

    Raises:
        TachoscopeError: a content is not an output of a scheduler.
    """
    rows: list[slurm.SacctRow] = []
    names: list[str] = []
    found: list[dict[str, Any]] = []
    for where, content in contents:
        if sacct_table.is_table(content):
            rows += sacct_table.rows(content, where)
            names.append(where)
            continue
        for document in _documents(content, where):
            if isinstance(document.get("jobs"), list):
                rows += slurm_json.rows(document, where)
                names.append(where)
            elif all(objects.kind(one)[1] for one in kubernetes.flatten(document)):
                found += kubernetes.flatten(document)
            else:
                raise TachoscopeError(f"{where} is neither the output of sacct nor an object of Kubernetes", fix=_WAYS)
    return slurm.allocations(rows, ", ".join(names)) + kubernetes.allocations(found)


def _of_directory(path: Path) -> list[Path]:
    files = sorted(file for file in path.iterdir() if file.suffix in {".json", ".txt"} and file.is_file())
    if not files:
        raise TachoscopeError(f"{path} has no .json and no .txt file", fix=_WAYS)
    return files


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TachoscopeError(f"could not read {file}: {error.strerror}") from None


def _documents(content: str, where: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a file: one, or several written behind each other, as repeated calls of kubectl leave them."""
    decoder, place, found = json.JSONDecoder(), 0, []
    content = content.lstrip("\ufeff").strip()
    while place < len(content):
        try:
            document, place = decoder.raw_decode(content, place)
        except (json.JSONDecodeError, RecursionError) as error:
            line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise TachoscopeError(f"{where}{line} is neither JSON nor a table of sacct", fix=_WAYS) from None
        if not isinstance(document, dict):
            raise TachoscopeError(f"{where} is a JSON {type(document).__name__}, not an object", fix=_WAYS)
        found.append(document)
        place = len(content) - len(content[place:].lstrip())
    if not found:
        raise TachoscopeError(f"{where} is empty", fix=_WAYS)
    return found
