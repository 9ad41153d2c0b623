"""Reads dumps of the flight recorder: the pickle that PyTorch writes on a time-out, and the JSON of its debug server."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from tachoscope_analyzers.flight_recorder.dump import Dump, Group, Operation, Progress
from tachoscope_analyzers.flight_recorder.refusing import RefusedError, plain_values
from tachoscope_core.errors import TachoscopeError

NAME = re.compile(r"(?:nccl_trace_rank_|comm_lib_trace_rank_|_dump_)(\d{1,7})(?:\.(?:json|pickle|pkl))?")
"""How files are called: by PyTorch with its default names, old and new, and by tools that collect them."""
MOST_BYTES, MOST_ENTRIES, MOST_SIZES = 64 << 20, 100_000, 2_000_000
_NUMBER = re.compile(r"\d{1,7}")
_PEER = re.compile(r"(?P<what>send|recv) (?P<own>\d{1,7})(?P<arrow>->|<-)(?P<other>\d{1,7})")


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


class _Entry(msgspec.Struct):
    process_group: tuple[str, str]
    collective_seq_id: int
    profiling_name: str
    state: str
    pg_id: int = -1
    p2p_seq_id: int = 0
    is_p2p: bool = False
    retired: bool = False
    time_created_ns: int = 0
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    frames: list[_Frame] = []


class _Status(msgspec.Struct):
    last_enqueued_collective: int
    last_completed_collective: int


class _Config(msgspec.Struct):
    desc: str = ""
    ranks: str = "[]"


class _Raw(msgspec.Struct):
    version: str
    entries: list[_Entry]
    pg_config: dict[str, _Config] = {}
    pg_status: dict[str, _Status] = {}


class UnsoundDumpError(TachoscopeError):
    """A dump that is cut off, damaged, or none."""


def is_dump(path: Path) -> bool:
    """Return whether a file is called as dumps are, or ends with a rank and begins as their pickles do."""
    return NAME.fullmatch(path.name) is not None or (re.fullmatch(r".*\d", path.name) is not None and _begins_so(path))


def dumps_in(places: Iterable[str]) -> list[Path]:
    """Return the dumps that the places name or, of folders, hold; none if another thing is among the places."""
    found: list[Path] = []
    for place in map(Path, places):
        try:
            mine = sorted(filter(is_dump, filter(Path.is_file, place.iterdir()))) if place.is_dir() else [place] * is_dump(place)
        except OSError:
            mine = []
        if not mine:
            return []
        found += mine
    return found


def _begins_so(path: Path) -> bool:
    """Return whether a file begins as the pickle of a dump does."""
    try:
        with path.open("rb") as file:
            begin = file.read(256)
    except OSError:
        return False
    return begin[:1] == b"\x80" and (b"pg_config" in begin or b"entries" in begin or b"nccl_version" in begin)


def rank_of(path: Path) -> int:
    """Return the rank that the name of a file ends with.

    Raises:
        TachoscopeError: it ends with none.
    """
    match = NAME.fullmatch(path.name) or re.fullmatch(r".*?(\d{1,7})(?:\.[a-z]+)?", path.name)
    if match is None:
        raise TachoscopeError(
            f"the name of {path} does not end with a rank", fix="call dumps nccl_trace_rank_0, nccl_trace_rank_1, ..."
        )
    return int(match[1])


def read(path: Path) -> Dump:
    """Read the dump of a rank.

    Raises:
        UnsoundDumpError: it is none, or damaged. TachoscopeError: it cannot be read, is larger than any, or holds code.
    """
    rank = rank_of(path)
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise TachoscopeError(
                f"{path} has {size >> 20} MiB, a dump has at most {MOST_BYTES >> 20}", fix="lower TORCH_FR_BUFFER_SIZE"
            )
        data = path.read_bytes()
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror}") from None
    try:
        raw = msgspec.convert(_bounded(_values(data)), _Raw, strict=False, str_keys=True)
        return _dump(rank, raw)
    except RefusedError as error:
        raise TachoscopeError(f"{path} was refused: {error}", fix="dumps hold plain values only; do not open this file") from None
    except Exception as error:  # damaged pickles fail in every way
        reason = str(error)[:200] if isinstance(error, ValueError | msgspec.MsgspecError) else "it is empty, cut off or damaged"
        way_out = "remove it: its rank then counts as one without a dump"
        raise UnsoundDumpError(f"{path} is not a sound dump of a flight recorder: {reason}", fix=way_out) from None


def _values(data: bytes) -> object:
    return json.loads(data) if data[:1] in (b"{", b" ", b"\n") else plain_values(data)


def _bounded(values: object) -> object:
    """Refuse what is small in a file and large in memory: a part that stands in many places."""
    entries = values.get("entries") if isinstance(values, dict) else None
    if not isinstance(entries, list | tuple):
        return values  # what is wrong is told by those who take it apart
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"it has {len(entries)} entries, more than {MOST_ENTRIES}")
    sizes = 0
    for entry in entries:
        for key in ("input_sizes", "input_dtypes", "frames", "process_group"):
            part = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(part, list | tuple):
                sizes += len(part) + (
                    sum(len(one) for one in part if isinstance(one, list | tuple)) if len(part) < MOST_SIZES else 0
                )
        if sizes > MOST_SIZES:
            raise ValueError("its entries hold more sizes than any job's")
    return values


def _dump(rank: int, raw: _Raw) -> Dump:
    groups = {name: Group(one.desc[:200], _ranks(one.ranks)) for name, one in raw.pg_config.items() if name}
    nameless = raw.pg_config.get("")  # gloo's, each over the one before: of one group it is known whose it is
    ranks = _ranks(nameless.ranks) if nameless and len(raw.pg_status) == 1 else ()
    for entry in raw.entries:
        groups.setdefault(entry.process_group[0], Group(entry.process_group[1][:200], ranks))
    numbers: dict[int, set[str]] = defaultdict(set)
    for entry in raw.entries:
        numbers[entry.pg_id].add(entry.process_group[0])
    return Dump(
        rank=rank,
        version=raw.version[:40],
        groups=groups,
        numbers={number: next(iter(names)) for number, names in numbers.items() if len(names) == 1},
        progress={
            int(number): Progress(status.last_enqueued_collective, status.last_completed_collective)
            for number, status in raw.pg_status.items()
            if _NUMBER.fullmatch(number)
        },
        operations=tuple(_operation(entry, groups) for entry in raw.entries),
    )


def _ranks(text: str) -> tuple[int, ...]:
    """Return the ranks in `[0, 1]`, as the recorder writes them."""
    return tuple(int(one) for one in re.findall(r"\d{1,7}", text[:1_000_000]))


def _operation(entry: _Entry, groups: Mapping[str, Group]) -> Operation:
    group = entry.process_group[0]
    name = entry.profiling_name.partition(":")[2] or entry.profiling_name
    match = _PEER.fullmatch(name)
    peer = None
    if entry.is_p2p and match:
        ranks, place = groups[group].ranks, int(match["other"])
        peer = ranks[place] if place < len(ranks) else place
    return Operation(
        group=group,
        sequence=entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id,
        name=name[:100],
        peer=peer,
        sends=bool(match and match["what"] == "send"),
        sizes=tuple(tuple(one) for one in entry.input_sizes),
        dtypes=tuple(entry.input_dtypes),
        pending=entry.state != "completed" and not entry.retired,
        created_ns=entry.time_created_ns,
        stack=tuple(_stack(entry.frames)),
    )


def _stack(frames: Iterable[_Frame]) -> Iterable[str]:
    return [f"{Path(frame.filename).name}:{frame.line} {frame.name}"[:200] for frame in frames][:20]


def read_sound(paths: Iterable[Path]) -> tuple[dict[int, Dump], list[Path]]:
    """Read the dumps of a job, by rank, and return beside them the files that are damaged: a process that dies cuts its own off.

    Raises:
        UnsoundDumpError: all are. TachoscopeError: one cannot be read or holds code, or two are of the same rank.
    """
    sound, damaged, last = [], [], None
    for path in paths:
        try:
            sound.append((read(path), path))
        except UnsoundDumpError as error:
            damaged.append(path)
            last = error
    if last is not None and not sound:
        raise last
    return _by_rank(sound), damaged


def read_all(paths: Iterable[Path]) -> dict[int, Dump]:
    """Read the dumps of a job, by rank.

    Raises:
        TachoscopeError: one cannot be read, or two are of the same rank.
    """
    return _by_rank((read(path), path) for path in paths)


def _by_rank(dumps: Iterable[tuple[Dump, Path]]) -> dict[int, Dump]:
    found: dict[int, tuple[Dump, Path]] = {}
    for dump, path in dumps:
        if dump.rank in found:
            raise TachoscopeError(
                f"{found[dump.rank][1]} and {path} are both of rank {dump.rank}", fix="give the dumps of one moment only"
            )
        found[dump.rank] = dump, path
    return {rank: dump for rank, (dump, _) in sorted(found.items())}
