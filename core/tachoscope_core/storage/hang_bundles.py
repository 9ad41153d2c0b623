"""What was found at a hang on each node, while it lasted: `jobs/<job>/hangs/<attempt>-<since>/<node>.json.gz`.

Who noticed the hang (the node's agent, or `tachoscope run` where there is none) writes one object, once for each hang and node.
What could not be had is named in `missing`, with the reason: an absent part never looks like an empty one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage.store import Store, host_folder, unpacked, written_time

SCHEMA = 1
MOST_BYTES = 8 << 20
"""Of one bundle, unpacked: some 500 processes."""
_FEWER_THREADS = (16, 4, 1)
_HANG = re.compile(r"(?P<attempt>\d{1,9})-(?P<since>\d{1,12})")


class ThreadEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thread of a process that stands still.

    Attributes:
        tid, name: as the kernel knows them. state: `R`, `S`, `D`, `T`, ... of `/proc/PID/status`.
        wchan: the kernel function that it sleeps in. syscall: number and arguments, as `/proc/PID/syscall` has them.
        kernel: its kernel stack, the innermost function first; only root may read it.
        frames: Python frames as `path:line function`, the innermost first.
    """

    tid: int
    name: str = ""
    state: str = ""
    wchan: str = ""
    syscall: str = ""
    kernel: list[str] = []
    frames: list[str] = []


class ProcessEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank, or a process that a rank started.

    Attributes:
        rank: the rank, also of what it started. kind: `rank`, `loader_worker` or `child`. step, phase: of the rank, as it said.
        threads: that which trains, or loads, first. py_spy: what `py-spy dump` printed; empty: it was not asked.
        missing: parts that could not be had, with the reason.
    """

    rank: int
    pid: int
    kind: str = "rank"
    step: int = 0
    phase: str = ""
    threads: list[ThreadEvidence] = []
    py_spy: str = ""
    missing: dict[str, str] = {}


class HangBundle(msgspec.Struct, frozen=True, kw_only=True):
    """All that one node found at one hang. Times are Unix seconds by the node's clock.

    Attributes:
        since: when a rank of the node finished its last step. noticed: when the hang was. complete: when all was collected.
        failed_rank: the rank that the others wait for, by the hang rule; -1: not known. why: what it was judged by.
        network: counters of the node by interface, what they moved in `network_seconds`; by port of InfiniBand as well.
        kernel_log: lines on GPUs (Xid), file systems, links and tasks that stand still.
        ras: what NCCL's RAS answered. dumps: flight-recorder dumps by rank, files beside this object.
        missing: parts that could not be had, with the reason.
    """

    schema: int = SCHEMA
    job: str
    attempt: int
    node: str
    since: float
    noticed: float
    complete: float = 0.0
    step: int = 0
    failed_rank: int = -1
    why: str = ""
    processes: list[ProcessEvidence] = []
    network: dict[str, dict[str, float]] = {}
    network_seconds: float = 0.0
    kernel_log: list[str] = []
    ras: str = ""
    dumps: dict[str, str] = {}
    missing: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class StoredHang:
    """One hang of a job: its attempt, the Unix second of its last step, and its nodes' objects with when they were written."""

    attempt: int
    since: int
    paths: dict[str, float]


def write(store: Store, bundle: HangBundle) -> str:
    """Write what a node found; return the path of the object. Of more than `MOST_BYTES` threads are left out, which it then says.

    Raises:
        TachoscopeError: the store does not take it.
    """
    document = msgspec.json.encode(bundle)
    for threads in _FEWER_THREADS:
        if len(document) <= MOST_BYTES:
            break
        processes = [msgspec.structs.replace(process, threads=process.threads[:threads]) for process in bundle.processes]
        missing = bundle.missing | {"threads": f"all but the first {threads} of each process are left out, for their size"}
        document = msgspec.json.encode(msgspec.structs.replace(bundle, processes=processes, missing=missing))
    return store.write_hang(bundle.job, f"{_folder(bundle)}/{host_folder(bundle.node)}.json.gz", document)


def write_dump(store: Store, bundle: HangBundle, rank: int, data: bytes) -> str:
    """Write a flight-recorder dump of a rank beside the bundle; return its name there. Raises TachoscopeError as `write`."""
    name = f"comm_lib_trace_rank_{rank}"
    store.write_hang_dump(bundle.job, f"{_folder(bundle)}/{name}", data)
    return name


def _folder(bundle: HangBundle) -> str:
    return f"{bundle.attempt}-{int(bundle.since)}"


def hangs(store: Store, job: str) -> list[StoredHang]:
    """Return the hangs of a job, the newest first; none where there are none.

    Nodes notice one hang at their own last steps: hangs of one attempt within `SAME_SECONDS` are one.

    Raises:
        TachoscopeError: the store cannot be read, or the job's name is none.
    """
    key = f"jobs/{check_job_name(job)}/hangs"
    found: list[StoredHang] = []
    by_hang: dict[tuple[int, int], dict[str, float]] = {}
    for path, entry in store.find(key).items():
        folder = _HANG.fullmatch(path.rsplit("/", 2)[-2])
        if folder is not None and path.endswith(".json.gz"):
            by_hang.setdefault((int(folder["attempt"]), int(folder["since"])), {})[path] = written_time(entry)
    for (attempt, since), paths in sorted(by_hang.items()):
        last = found[-1] if found else None
        if last is not None and last.attempt == attempt and since - last.since <= SAME_SECONDS:
            last.paths.update(paths)
        else:
            found.append(StoredHang(attempt, since, dict(paths)))
    return found[::-1]


SAME_SECONDS = 60
"""Ranks that wait for each other finish their last steps within a step; clocks of nodes differ."""


def read(store: Store, path: str) -> HangBundle:
    """Read what a node found.

    Raises:
        TachoscopeError: it cannot be read, is of a newer schema, or is no bundle.
    """
    try:
        document = unpacked(store.files.cat_file(path), MOST_BYTES)
    except Exception as error:  # each object store has its own
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None
    return parse(document, path)


def last_hang(store: Store, job: str, attempt: int | None = None) -> tuple[list[HangBundle], list[str]]:
    """Return what the nodes found at a job's last hang, or at the last one of an attempt, and where it lies; nothing if nothing was
    collected.

    An object that cannot be read is left out if another can.

    Raises:
        TachoscopeError: the store cannot be read, or none of the objects can.
    """
    hang = next((one for one in hangs(store, job) if attempt in (None, one.attempt)), None)
    found: dict[str, HangBundle] = {}
    fault: TachoscopeError | None = None
    for path in sorted(hang.paths) if hang is not None else ():
        try:
            found[path] = read(store, path)
        except TachoscopeError as error:
            fault = error
    if not found and fault is not None:
        raise fault
    return list(found.values()), list(found)


class _Schema(msgspec.Struct):
    schema: int


def parse(document: bytes, where: str) -> HangBundle:
    """Return the bundle that a document is. Raises TachoscopeError, naming `where` it lies, if it is none."""
    try:
        schema = msgspec.json.decode(document, type=_Schema).schema
        if schema > SCHEMA:
            raise TachoscopeError(
                f"{where} is of schema {schema}, newer than the schema {SCHEMA} that this version reads",
                fix="pip install --upgrade tachoscope",
            )
        return msgspec.json.decode(document, type=HangBundle)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TachoscopeError(f"{where} is not what was found at a hang: {error}") from None
