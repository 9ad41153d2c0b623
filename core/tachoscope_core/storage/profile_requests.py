"""What somebody asks of a running job: a profiler trace of all its ranks. Documents in the store, which agents poll.

`jobs/<job>/requests/<id>/request.json` is written once, by who asks; `plan.json` by the agent of rank 0, which says when all ranks
record, or why they do not; `host=<host>.json` by each agent that has ranks of the job: how far they are. Each document has one
writer, so nobody needs a lock. The traces become the recording of the same id (see `stored_traces`).
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from tachoscope_core.errors import TachoscopeError, not_written
from tachoscope_core.records.records import check_job_name, is_job_name
from tachoscope_core.storage.store import Store
from tachoscope_core.storage.traces import recording_name

MAX_BYTES = 1 << 20
"""A longer document is not read."""
EXPIRY_SECONDS = 60.0
"""A request that is older when an agent first sees it is nobody's any more."""

_UNSAFE_HOST = re.compile(r"[^A-Za-z0-9._-]")
_T = TypeVar("_T")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants a trace of all ranks of a job.

    Attributes:
        steps: whole steps that the trace should hold. asked_at: Unix seconds. asked_by: a user, or what acted by itself.
        reason: why, where it was not a user.
    """

    job: str
    id: str
    steps: int
    asked_at: float
    asked_by: str
    reason: str = ""


class Pass(msgspec.Struct, frozen=True):
    """All ranks record from `start`, Unix seconds, for `seconds`."""

    start: float
    seconds: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent of rank 0 decided.

    Attributes:
        passes: the last one counts; the ones before it were too short, since nothing told how long a step takes.
        final: no more passes follow. refused: why nothing is recorded at all; empty: it is.
        step_seconds: as measured or known; 0: not known.
    """

    passes: tuple[Pass, ...] = ()
    final: bool = False
    refused: str = ""
    step_seconds: float = 0.0


State = Literal["waiting", "told", "recorded", "stored", "failed"]
"""`waiting`: it has not asked the agent yet, which its process does every 5 s. `told`: it knows when to record."""


class RankState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rank is. `steps`: whole ones in its trace, 0: none could be told apart. `file`, `bytes`: of the stored trace."""

    rank: int
    world_size: int
    state: State
    reason: str = ""
    steps: int = 0
    file: str = ""
    bytes: int = 0


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the ranks of a node are; `updated` in Unix seconds."""

    host: str
    updated: float
    ranks: tuple[RankState, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestAnswers:
    """What agents have said of a request so far."""

    plan: Plan | None
    hosts: tuple[HostState, ...]

    @property
    def ranks(self) -> list[RankState]:
        """All ranks that agents know, by number."""
        return sorted((rank for host in self.hosts for rank in host.ranks), key=lambda rank: rank.rank)


def new_request(job: str, steps: int, *, now: float, asked_by: str, reason: str = "") -> Request:
    """Return a request with an id of its own, in order of time.

    Raises:
        TachoscopeError: the job's name is none.
    """
    what = f"profile-{secrets.token_hex(2)}"
    return Request(
        job=check_job_name(job), id=recording_name(now, what), steps=steps, asked_at=now, asked_by=asked_by, reason=reason
    )


def write_request(store: Store, request: Request) -> None:
    """Write a request where agents look.

    Raises:
        TachoscopeError: the store cannot be written.
    """
    _write(store, _folder(store, request.job, request.id), "request.json", request)


def withdraw(store: Store, request: Request) -> None:
    """Remove a request that nobody took, and the folders that were made for it where nothing else is in them.

    Raises:
        TachoscopeError: the store cannot be written.
    """
    folder = _folder(store, request.job, request.id)
    try:
        store.files.rm(folder, recursive=True)
        for path in (folder.rpartition("/")[0], f"{store.root}/jobs/{request.job}"):
            if store.local and not store.files.ls(path):
                store.files.rmdir(path)
    except Exception as error:
        raise TachoscopeError(f"could not remove {folder} in store {store.url}: {error}") from None


def write_plan(store: Store, request: Request, plan: Plan) -> None:
    """Write what was decided.

    Raises:
        TachoscopeError: the store cannot be written.
    """
    _write(store, _folder(store, request.job, request.id), "plan.json", plan)


def write_host(store: Store, request: Request, state: HostState) -> None:
    """Write how far the ranks of a node are.

    Raises:
        TachoscopeError: the store cannot be written.
    """
    _write(store, _folder(store, request.job, request.id), f"host={_UNSAFE_HOST.sub('_', state.host)}.json", state)


def ids(store: Store, job: str, *, since: float) -> list[str]:
    """Return the ids of the requests of a job that were made after `since`, in Unix seconds, in order of time.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    folder = f"{store.root}/jobs/{check_job_name(job)}"
    root = f"{folder}/requests"
    if not store.local and root not in store.folders(folder):  # one request; to list what is not there takes two
        return []
    try:
        entries = store.files.ls(root, detail=False)
    except FileNotFoundError:
        return []
    except Exception as error:
        raise TachoscopeError(f"could not list {root} in store {store.url}: {error}") from None
    first = recording_name(since)
    return sorted(name for path in entries if (name := str(path).rstrip("/").rpartition("/")[2]) >= first and is_job_name(name))


def read_request(store: Store, job: str, request_id: str) -> Request | None:
    """Return a request, or None where there is none.

    Raises:
        TachoscopeError: the store cannot be read, or holds something else there.
    """
    found = _read(store, f"{_folder(store, job, request_id)}/request.json", Request)
    if found is not None and (found.job, found.id) != (job, request_id):
        raise TachoscopeError(f"request {request_id} of job {job} in store {store.url} has the id of another one")
    return found


def read_plan(store: Store, job: str, request_id: str) -> Plan | None:
    """Return the plan for a request, or None while there is none.

    Raises:
        TachoscopeError: the store cannot be read, or holds something else there.
    """
    return _read(store, f"{_folder(store, job, request_id)}/plan.json", Plan)


def read_answers(store: Store, job: str, request_id: str) -> RequestAnswers:
    """Return what agents have said of a request so far.

    Raises:
        TachoscopeError: the store cannot be read, or holds something else there.
    """
    folder = _folder(store, job, request_id)
    try:
        paths = sorted(str(path) for path in store.files.ls(folder, detail=False))
    except FileNotFoundError:
        paths = []
    except Exception as error:
        raise TachoscopeError(f"could not list {folder} in store {store.url}: {error}") from None
    named = [path for path in paths if re.fullmatch(r"host=[^/]+\.json", path.rpartition("/")[2])]
    hosts = (_read(store, path, HostState) for path in named)
    return RequestAnswers(read_plan(store, job, request_id), tuple(host for host in hosts if host is not None))


def _folder(store: Store, job: str, request_id: str) -> str:
    return f"{store.root}/jobs/{check_job_name(job)}/requests/{check_job_name(request_id)}"


def _read(store: Store, path: str, kind: type[_T]) -> _T | None:
    try:
        data = store.files.cat_file(path, start=0, end=MAX_BYTES)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise TachoscopeError(f"{path} in store {store.url} is not a {kind.__name__.lower()}: {error}", fix="remove it") from None


def _write(store: Store, folder: str, name: str, document: Any) -> None:
    """Write a document atomically."""
    path, data = f"{folder}/{name}", msgspec.json.encode(document)
    try:
        store.files.makedirs(folder, exist_ok=True)
        store.files.pipe_file(path, data)
    except Exception as error:
        raise not_written(path, error, where=f" in store {store.url}") from None
