"""Which paths on the command line are profiler traces, and what is wrong with those that are nothing that can be analysed."""

from __future__ import annotations

import glob
import os
import stat
from pathlib import Path

from tachoscope_analyzers.flight_recorder.read import NAME
from tachoscope_analyzers.trace.reading.trace_files import PATTERN_LETTERS, SUFFIXES
from tachoscope_cli.inputs.paths import is_job_folder, is_store
from tachoscope_core.allocator import keep_freed_memory
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.spool import SEGMENT_SUFFIX

_PEEKED_BYTES = 4096
_WHAT_TRACES_ARE = (
    f"traces end with {', '.join(SUFFIXES)}, dumps of a flight recorder with their rank "
    "(nccl_trace_rank_0); records are in a store or a spool (tachoscope run)"
)
_COMPRESSED_OR_DATABASE = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\0")
"""How gzip, Zstandard and SQLite begin: records are never any of them."""


def are_traces(paths: list[str]) -> bool:
    """Return whether the paths name profiler traces: files by name and first bytes, directories and patterns by what is in them.

    Raises:
        TachoscopeError: one of them cannot be read, is nothing that can be analysed, or is not a trace while others are.
    """
    others = [path for path in paths if not _is_trace(path)]
    if others and len(others) < len(paths):
        raise TachoscopeError(f"{others[0]} is not a profiler trace, but other paths are", fix="leave it out")
    return not others


def begin_reading(paths: list[str]) -> None:
    """Begin to read a single trace while this process imports what analyses it; several are read by processes of their own."""
    if len(paths) == 1 and os.path.isfile(paths[0]):
        keep_freed_memory()
        from tachoscope_analyzers.trace.reading import read

        read.begin_reading(Path(paths[0]))


def _is_trace(path: str) -> bool:
    if path.endswith((".nsys-rep", ".qdrep")):
        raise TachoscopeError(
            f"{path} is Nsight's own format", fix=f"nsys export --type sqlite {path}, and analyze the .sqlite file"
        )
    if is_store(path) or is_job_folder(path):
        return False
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return _is_pattern_of_traces(path, error)
    if stat.S_ISDIR(mode):
        return _is_folder_of_traces(path)
    if stat.S_ISREG(mode):
        return _is_trace_file(path)
    if stat.S_ISFIFO(mode):  # as bash gives for <(...)
        return False
    raise TachoscopeError(f"{path} is neither a file nor a directory", fix="name traces, records, a saved report or a store")


def _is_pattern_of_traces(path: str, error: OSError) -> bool:
    """Judge a pattern by its first match, which is a path of its own."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise TachoscopeError(f"could not read {path}: {error.strerror}") from None
    matches = [match for match in glob.iglob(path, recursive=True) if match != path]
    if matches:
        return any(_is_trace(match) for match in sorted(matches)[:1])
    if os.path.islink(path):
        raise TachoscopeError(f"{path} is a link to {os.readlink(path)}, which does not exist") from None
    if any(letter in path for letter in PATTERN_LETTERS):
        raise TachoscopeError(f"nothing matches {path}", fix="name traces, or a directory of them") from None
    raise TachoscopeError(
        f"{path} does not exist", fix="give traces, a directory or pattern of them, a store, a spool directory or a report"
    ) from None


def _is_folder_of_traces(path: str) -> bool:
    """Return whether a directory has traces, else records; logs beside traces often have the suffix of records."""

    def refuse(error: OSError) -> None:
        raise TachoscopeError(f"could not read {error.filename}: {error.strerror}")

    by_folder = {folder: files for folder, _, files in os.walk(path, onerror=refuse)}
    names = [name for files in by_folder.values() for name in files]
    if any(name.endswith(SUFFIXES) for name in names):
        return True
    if any(name.endswith(SEGMENT_SUFFIX) for name in names):
        return False
    dumps = sorted(folder for folder, files in by_folder.items() if any(map(NAME.fullmatch, files)))
    if dumps:
        raise TachoscopeError(f"{path} has flight recorder dumps in its subfolders", fix=f"name one of them, such as {dumps[0]}")
    raise TachoscopeError(f"{path} contains no traces, records or dumps", fix=_WHAT_TRACES_ARE)


def _is_trace_file(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            begin = file.read(_PEEKED_BYTES).lstrip()
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror}") from None
    if begin.startswith(_COMPRESSED_OR_DATABASE):
        return True
    if path.endswith(SUFFIXES):
        return not begin.startswith((b'{\n  "schema":', b'{"schema":'))  # as a saved report begins
    if path.endswith(SEGMENT_SUFFIX) or (begin.startswith(b"{") and b'"kind"' in begin):
        return False
    raise TachoscopeError(f"{path} is neither a trace nor records nor a saved report", fix=_WHAT_TRACES_ARE)
