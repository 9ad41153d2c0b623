"""The store: records, traces and reports of all jobs under one root that fsspec opens (a directory, `s3://...`).

`jobs/<job>/records/date=<day>/host=<host>/<writer>-<attempt>-<offset>.jsonl.gz`. The key holds writer and offset, so
shipping the same bytes twice writes the same object; another content under the key of one that is there is refused.
`jobs/<job>/owner.json`: whose job it is, `{"uid": 1000}`, in Kubernetes with `namespace`, written before its first record and never
changed.
`metrics/date=<day>/host=<host>/<name>.jsonl.gz`: metric samples.
`nodes/<host>.json.gz`: what runs on a node now, see `node_status`.
`jobs/<job>/ledger/`: seconds by state of its ranks, see `ledger_rows`.
`jobs/<job>/hangs/`: what was found on each node at a hang, see `hang_bundles`.
`preflight/host=<host>/`: what tests of the node measured, see `preflights`.
`node-lifecycle/`: states of nodes, requests of people, results of tests, and what was done.
`watches/`: which watches share the jobs, and what each found, see `watch_leases`.
`jobs/<job>/quarantine/<host>.json.gz`: data shards that failed, as each host knows them. `jobs/<job>/requests/`: what somebody asks
of a running job, see `profile_requests`.
Errors of a backend are caught as `Exception`: each object store has its own, and they share no base class.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tachoscope_core.errors import TachoscopeError, not_written
from tachoscope_core.owner import Owner
from tachoscope_core.records.records import check_job_name, is_job_name

if TYPE_CHECKING:
    from tachoscope_core.storage.s3_puts import SignedPuts

KEY = re.compile(r"(?P<writer>[0-9a-f-]+)-a(?P<attempt>\d+)-(?P<offset>\d{12,20})\.jsonl\.gz")
"""Names of objects of records."""
MAX_OBJECT_BYTES = 16 << 20
"""Unpacked. Records are shipped in ranges of 8 MiB at most, and no quarantine list is larger."""
_SAMPLES_KEY = re.compile(r"(?P<began>\d{1,12})-[^/]*\.jsonl\.gz")
_UNSAFE_HOST = re.compile(r"[^A-Za-z0-9._-]")
_AT_ONCE = 16
"""Requests to an object store, each of which waits some 20 ms for its answer."""
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def default_url() -> str:
    """Return `$TACHOSCOPE_STORE`, else the user's data directory."""
    data_home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return os.environ.get("TACHOSCOPE_STORE") or str(Path(data_home) / "tachoscope")


def _options(url: str) -> dict[str, Any]:
    """Return what an object store is asked for beyond the defaults.

    It is to say within seconds that it cannot be reached. s3fs asks for the size of each object before it reads it, unless it reads
    parts one after the other; botocore assembles a user agent twice a request, unless it is given one.
    """
    if not url.startswith("s3://"):
        return {}
    waits = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}
    return {"config_kwargs": waits | {"user_agent": "tachoscope"}, "max_concurrency": 1}


def absolute_url(url: str) -> str:
    """Return a store's URL so that it means the same wherever it is read."""
    return url if "://" in url else str(Path(url).absolute())


def check_url(url: str) -> None:
    """Return whether there is a kind of store for this URL, without a look at the store.

    Raises:
        TachoscopeError: nothing knows such URLs, or the package that does is missing.
    """
    import fsspec

    try:
        fsspec.get_filesystem_class(fsspec.utils.get_protocol(url))
    except (ImportError, ValueError) as error:
        fix = "a directory, or s3://bucket/path, which needs pip install 'tachoscope[s3]'"
        raise TachoscopeError(f"could not open store {url!r}: {error}", fix=fix) from None


def unpacked(data: bytes, most: int | None = None) -> bytes:
    """Return what an object of gzip holds; of more than `most` bytes nothing, None: than `MAX_OBJECT_BYTES`.

    Raises:
        ValueError: what is wrong with it.
    """
    most = MAX_OBJECT_BYTES if most is None else most
    parts, room = [], most
    while data:
        part = zlib.decompressobj(wbits=31)
        try:
            parts.append(part.decompress(data, room + 1))
        except zlib.error as error:
            raise ValueError(f"not gzip ({error})") from None
        room -= len(parts[-1])
        if room < 0:
            raise ValueError(f"larger than {most >> 20} MiB, unpacked")
        if not part.eof:
            raise ValueError("cut short")
        data = part.unused_data
    return b"".join(parts)


def written_time(entry: dict[str, Any]) -> float:
    """Return when an object was written, in Unix seconds, as a file system of fsspec lists it."""
    time = entry.get("mtime") or entry.get("LastModified") or 0.0
    return time.timestamp() if isinstance(time, datetime) else float(time)


_COMPACTED_NAME = re.compile(r"/compacted/date=[^/]*/(\d{1,12})_[^/]*")


def _written_time(path: str, entry: dict[str, Any]) -> float:
    """Return when what an object holds was written: compacted records have in their name when the last of them was."""
    match = _COMPACTED_NAME.search(path)
    return float(match[1]) if match else written_time(entry)


def _day(time: float) -> str:
    return datetime.fromtimestamp(max(time, 0.0), UTC).date().isoformat()


def _partition(time: float, host: str) -> str:
    return f"date={_day(time)}/host={host_folder(host)}"


def host_folder(host: str) -> str:
    """Return a host's name as the names of objects have it."""
    return _UNSAFE_HOST.sub("_", host)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """One object of records: where it lies, what its key says, and when it was written, Unix seconds, with how many bytes."""

    path: str
    host: str
    writer: str
    attempt: int
    offset: int
    written: float = 0.0
    bytes: int = 0

    @property
    def day(self) -> str:
        """The day of its records, UTC, as its folder says."""
        return self.path.partition("/date=")[2][:10]


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """One object of metric samples: where it lies, and the Unix time of its first sample as its name says."""

    path: str
    host: str
    began: float


_NOBODY = 65534
"""Whose files those of root are on a network file system that does not trust root (root_squash)."""


def is_trusted(uid: int) -> bool:
    """Return whether a user may say anything in a store that is a directory: root, or the user of this process."""
    return uid in {0, _NOBODY, os.geteuid()}


class BrokenObjectError(TachoscopeError):
    """An object cannot be read as what it should be."""


class GoneObjectError(TachoscopeError):
    """A listed object does not exist any more: it was compacted or removed in the meantime."""


class OtherContentError(TachoscopeError):
    """An object of that key is there, and has another content: somebody gave it out as the same writer's."""


class OtherOwnerError(TachoscopeError):
    """The job belongs to another user than the one who writes."""


class Store:
    """A store opened by its URL. Methods raise `TachoscopeError` naming the store when it cannot be read or written."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url
        check_url(url)
        try:
            self._fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **_options(url))
        except (ImportError, ValueError) as error:
            raise TachoscopeError(f"could not open store {url!r}: {error}") from None
        self._root: str = root.rstrip("/")
        self._made = False
        self._puts: SignedPuts | None = None
        if "s3" in self._protocols():
            from tachoscope_core.storage.s3_puts import SignedPuts

            self._puts = SignedPuts(self._fs)
        if self.local:
            from tachoscope_core.storage.store_directory import DirectoryFiles

            self._fs = DirectoryFiles(self._root)

    @property
    def files(self) -> Any:
        """The file system of fsspec that the store lies in."""
        return self._fs

    @property
    def root(self) -> str:
        """The store's path in `files`."""
        return self._root

    @property
    def local(self) -> bool:
        """Whether the store is a directory of this machine."""
        return "file" in self._protocols()

    def each(self, ask: Callable[[_Item], _Answer], items: Iterable[_Item]) -> Iterator[_Answer]:
        """Yield what `ask`, which reads from the store, returns for each item, in order; of an object store several at once."""
        if self.local:
            yield from map(ask, items)
            return
        from concurrent.futures import ThreadPoolExecutor  # a probe, which imports this module, never reads an object store

        left = iter(items)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tachoscope-store") as threads:
            while batch := list(islice(left, _AT_ONCE)):  # no more are in memory
                yield from threads.map(ask, batch)

    def jobs(self) -> list[str]:
        """Return the names of all jobs, sorted; folders whose names are not valid job names are ignored."""
        return sorted(filter(is_job_name, (path.rsplit("/", 1)[-1] for path in self._list(f"{self._root}/jobs"))))

    def job_times(self) -> dict[str, float]:
        """Return each job with the Unix time at which something of it was last written.

        Traces, which may be put there long after, and requests do not count, nor do jobs that have nothing else: see
        `stored_traces` and `profile_requests`. Reports count only of jobs that have nothing else: a watch writes them again.
        """
        times = {job: self._last_written(job) for job in self.jobs()}
        return {job: time for job, time in times.items() if time is not None}

    def _last_written(self, job: str) -> float | None:
        path, entries = f"{self._root}/jobs/{job}", self.find(f"jobs/{job}")
        left_out = (f"{path}/traces/", f"{path}/requests/", f"{path}/hold.json")
        others = {name: _written_time(name, entry) for name, entry in entries.items() if not name.startswith(left_out)}
        if entries and not others:
            return None
        own = [time for name, time in others.items() if not name.startswith(f"{path}/reports/")] or list(others.values())
        return max(own, default=0.0)

    def find(self, key: str) -> dict[str, dict[str, Any]]:
        """Return all objects below `key`, such as `jobs/resnet`, by path, in order, with what the file system knows of each."""
        root = f"{self._root}/{key}"
        try:
            entries: dict[str, dict[str, Any]] = self._fs.find(root, detail=True)
        except Exception as error:
            raise TachoscopeError(f"could not list {root} in store {self.url}: {error}") from None
        return dict(sorted(entries.items()))

    def segments(self, job: str) -> Iterator[StoredSegment]:
        """Yield the record objects of a job, in the order of their keys."""
        for path, entry in self.find(f"jobs/{check_job_name(job)}/records").items():
            match = KEY.fullmatch(path.rsplit("/", 1)[-1])
            if match:
                host = next((part[5:] for part in path.split("/") if part.startswith("host=")), "")
                numbers, size = (int(match["attempt"]), int(match["offset"])), int(entry.get("size") or 0)
                yield StoredSegment(path, host, match["writer"], *numbers, written_time(entry), size)

    def samples(self, host: str, *, start: float, end: float) -> list[StoredSamples]:
        """Return the objects of metric samples of a host that may hold some of a window in Unix seconds, the oldest first.

        An object holds what was sampled from its beginning until the next one's, at most a day.
        """
        name = _UNSAFE_HOST.sub("_", host)
        first, last = (f"date={_day(time)}" for time in (start - 86400.0, end))
        found: list[StoredSamples] = []
        for folder in self._list(f"{self._root}/metrics"):
            if not first <= folder.rsplit("/", 1)[-1] <= last:
                continue
            paths = self.find(f"{folder.removeprefix(self._root)}/host={name}".lstrip("/"))
            matches = ((path, _SAMPLES_KEY.fullmatch(path.rsplit("/", 1)[-1])) for path in paths)
            found += [StoredSamples(path, name, float(match["began"])) for path, match in matches if match]
        found.sort(key=lambda one: (one.began, one.path))
        last_before = max((one.began for one in found if one.began <= start), default=start)
        return [one for one in found if last_before <= one.began <= end]

    def sample_days(self) -> list[float]:
        """Return the beginnings of the days with metric samples, Unix seconds, the oldest first."""
        found: list[float] = []
        for folder in self._list(f"{self._root}/metrics"):
            with contextlib.suppress(ValueError):  # a folder that is no day
                day = datetime.fromisoformat(folder.rpartition("/date=")[2])
                found.append(day.replace(tzinfo=UTC).timestamp())
        return sorted(found)

    def sample_hosts(self, *, start: float, end: float) -> list[str]:
        """Return the hosts, as their folders are named, with metric samples of the days of a window in Unix seconds."""
        first, last = (f"date={_day(time)}" for time in (start - 86400.0, end))
        days = [folder for folder in self._list(f"{self._root}/metrics") if first <= folder.rsplit("/", 1)[-1] <= last]
        return sorted({path.rsplit("/", 1)[-1].removeprefix("host=") for day in days for path in self._list(day)})

    def write_node(self, host: str, document: bytes) -> str:
        """Write what a node says of itself (see `node_status`) in place of what it said before; return the path of the object."""
        return self._put(f"nodes/{host_folder(host)}.json.gz", document)

    def write_preflight(self, host: str, name: str, document: bytes) -> str:
        """Write a result of `tachoscope preflight`, see `preflights`; return the path of the object."""
        return self._put(f"preflight/host={host_folder(host)}/{name}.json.gz", document)

    def write_watch(self, name: str, data: bytes) -> str:
        """Write an object of a watch (see `watch_leases`) in place of the one before; return its path."""
        return self._put_bytes(f"watches/{name}", data)

    def nodes(self, *, since: float, only: Collection[str] | None = None) -> Iterator[tuple[str, int | None, bytes | str]]:
        """Yield path, writer, and content of each node's object that was written after `since`, Unix seconds.

        The writer: in a directory the user's id, unless it is trusted with everything; else None. Content: as text, what is wrong.

        Args:
            only: of these nodes, as `host_folder` names them; None: of all.
        """
        root = f"{self._root}/nodes"
        wanted = None if only is None else {f"{root}/{name}.json.gz" for name in only}
        try:
            entries: dict[str, dict[str, Any]] = self._fs.find(root, detail=True)
            paths = [path for path, entry in entries.items() if path.endswith(".json.gz") and written_time(entry) > since]
            paths = [path for path in paths if wanted is None or path in wanted]
        except Exception as error:
            raise TachoscopeError(f"could not read {root} in store {self.url}: {error}") from None
        yield from self.each(self._node, sorted(paths))

    def _node(self, path: str) -> tuple[str, int | None, bytes | str]:
        uid, document = 0, b""
        try:
            uid, document = self._fs.with_owner(path) if self.local else (0, self._fs.cat_file(path))
            said: bytes | str = unpacked(document)
        except Exception as error:
            said = f"could not read {path} in store {self.url}: {error}"
        return path, None if is_trusted(uid) else uid, said

    def read(self, segment: StoredSegment | StoredSamples) -> bytes:
        """Return the JSON lines of a segment or of samples; see `read_lines`."""
        return self.read_lines(segment.path)

    def read_lines(self, path: str) -> bytes:
        """Return the JSON lines of an object.

        Raises:
            GoneObjectError: it no longer exists.
            BrokenObjectError: it is cut short, not gzip, or larger than any that tachoscope writes.
        """
        try:
            data: bytes = self._fs.cat_file(path)
        except FileNotFoundError:
            raise GoneObjectError(f"{path} in store {self.url} no longer exists") from None
        except Exception as error:
            raise TachoscopeError(f"could not read {path} in store {self.url}: {error}") from None
        try:
            return unpacked(data)
        except ValueError as error:
            raise BrokenObjectError(f"could not read {path} in store {self.url}: it is {error}", fix="remove it") from None

    def write(
        self, job: str, *, host: str, writer: str, attempt: int, offset: int, time: float, lines: bytes, continues: bool = False
    ) -> str:
        """Write JSON lines that begin at `offset` of what `writer` wrote; return the path of the object.

        Args:
            continues: the caller wrote the object before it of that writer: the store is not asked whether another is there.

        Raises:
            OtherContentError: an object of that key is there, and it is not this one.
        """
        key = f"jobs/{check_job_name(job)}/records/{_partition(time, host)}/{writer}-a{attempt}-{offset:016d}.jsonl.gz"
        path = f"{self._root}/{key}"
        there = None if continues else self._content(path)
        if there is None:
            return self._put(key, lines)
        if there != lines:
            raise OtherContentError(f"{path} in store {self.url} already has other records of that writer and is not changed")
        return path

    def _content(self, path: str) -> bytes | None:
        """Return what an object of records holds; None: there is no whole one, or it cannot be read, as by who may only write."""
        try:
            return unpacked(self._fs.cat_file(path))
        except Exception:
            return None

    def owner(self, job: str) -> Owner | None:
        """Return the job's owner; None: nobody wrote it down, as before tachoscope kept owners."""
        try:
            return self._owner(job)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None

    def _owner(self, job: str) -> Owner:
        """Return what `owner.json` says; in a directory only if nobody else may have written it: else who made the job's folder."""
        folder = f"{self._root}/jobs/{check_job_name(job)}"
        path = f"{folder}/owner.json"
        try:
            maker = self._fs.status(folder).st_uid if self.local else 0
            if not is_trusted(maker):
                return Owner(maker)
            return msgspec.json.decode(self._fs.cat_file(path), type=Owner)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            raise
        except Exception as error:
            raise TachoscopeError(f"could not read {path} in store {self.url}: {error}") from None

    def claim(self, job: str, claimant: Owner) -> None:
        """Make somebody the owner of a job that has none yet; who may only write does not know, and claims nothing.

        Raises:
            OtherOwnerError: it has another one, or everybody may write to its folder.
            TachoscopeError: the store cannot be read or written.
        """
        try:
            owner = self._owner(job)
        except PermissionError:
            return
        except (FileNotFoundError, NotADirectoryError):
            self._put_bytes(f"jobs/{job}/owner.json", msgspec.json.encode(claimant))
            owner = self._owner(job)  # another user may have made the folder meanwhile
        if owner != claimant:
            whose = f"job {job!r} in store {self.url} belongs to {owner}, not to {claimant}"
            raise OtherOwnerError(whose, fix="choose another name with --job")
        folder = f"{self._root}/jobs/{job}"
        if self.local and self._fs.status(folder).st_mode & stat.S_IWOTH:
            raise OtherOwnerError(f"every user may write to {folder}", fix=f"chmod o-w {folder}, or choose another name with --job")

    def write_samples(self, *, host: str, name: str, time: float, lines: bytes) -> str:
        """Write metric samples, JSON lines, under a name that no other object of the host has; return the path of the object."""
        return self._put(f"metrics/{_partition(time, host)}/{name}.jsonl.gz", lines)

    def write_quarantine(self, job: str, host: str, document: bytes) -> str:
        """Write what a host, or a person, knows of a job's data shards (see `quarantine`); return the path of the object."""
        return self._put(f"jobs/{check_job_name(job)}/quarantine/{_UNSAFE_HOST.sub('_', host)}.json.gz", document)

    def read_quarantine(self, job: str) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the content of what each of them wrote last."""
        root = f"{self._root}/jobs/{check_job_name(job)}/quarantine"
        try:
            paths = sorted(path for path in self._fs.find(root) if path.endswith(".json.gz"))
            for path in paths:
                yield path, unpacked(self._fs.cat_file(path))
        except Exception as error:
            raise TachoscopeError(f"could not read {root} in store {self.url}: {error}") from None

    def reports(self, job: str) -> list[tuple[str, bytes]]:
        """Return the path and the content of each report that somebody saved of a job, `jobs/<job>/reports/*.json`, by name."""
        root = f"{self._root}/jobs/{check_job_name(job)}/reports"
        try:
            paths = sorted(path for path in self._fs.find(root) if path.endswith(".json"))
            return [(path, self._fs.cat_file(path)) for path in paths]
        except Exception as error:
            raise TachoscopeError(f"could not read {root} in store {self.url}: {error}") from None

    def write_report(self, job: str, name: str, document: bytes) -> str:
        """Write a report of a job in place of an older one of the name; return its path."""
        return self._put_bytes(f"jobs/{check_job_name(job)}/reports/{name}.json", document)

    def write_compacted(self, job: str, name: str, data: bytes) -> str:
        """Write an object of compacted records, see `compacted`; return its path."""
        return self._put_bytes(f"jobs/{check_job_name(job)}/compacted/{name}", data)

    def write_hold(self, job: str, document: bytes) -> str:
        """Write why a job is kept, see `retention`; return its path."""
        return self._put_bytes(f"jobs/{check_job_name(job)}/hold.json", document)

    def write_ledger(self, job: str, key: str, document: bytes) -> str:
        """Write ledger rows of a node, see `ledger_rows`, in place of those that the key names; return the path of the object."""
        packed = gzip.compress(document, mtime=0)  # kept for long, and small: as tight as it goes
        return self._put_bytes(f"jobs/{check_job_name(job)}/ledger/{key}.json.gz", packed)

    def write_hang(self, job: str, key: str, document: bytes) -> str:
        """Write what a node found at a hang, see `hang_bundles`; return the path of the object."""
        return self._put(f"jobs/{check_job_name(job)}/hangs/{key}", document)

    def write_hang_dump(self, job: str, key: str, data: bytes) -> str:
        """Write a flight-recorder dump of a rank that hangs as it is; return the path of the object."""
        return self._put_bytes(f"jobs/{check_job_name(job)}/hangs/{key}", data)

    def write_training_job(self, name: str, key: str, document: bytes) -> str:
        """Write a document of a training job, see `submitted_jobs`, in place of the one before; return its path."""
        return self._put_bytes(f"training-jobs/{check_job_name(name)}/{key}", document)

    def create_training_job(self, name: str, key: str, document: bytes) -> bool:
        """Write a document of a training job that does not exist; return False if it exists. Of several writers one succeeds."""
        path = f"{self._root}/training-jobs/{check_job_name(name)}/{key}"
        try:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, document, mode="create")
        except FileExistsError:
            return False
        except Exception as error:
            raise not_written(path, error, where=f" in store {self.url}") from None
        return True

    def write_node_lifecycle(self, key: str, document: bytes) -> str:
        """Write a document of the nodes' life cycle (`tachoscope_watch.nodes.stored`) in place of the one before."""
        return self._put_bytes(f"node-lifecycle/{key}", document)

    def folders(self, path: str) -> list[str]:
        """Return the paths of the folders in a folder of `files`, sorted; none where it does not exist."""
        return sorted(self._list(path))

    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects; objects that do not exist are skipped."""
        for path in paths:
            try:
                self._fs.rm_file(path)
            except FileNotFoundError:
                continue
            except Exception as error:
                raise TachoscopeError(f"could not remove {path} in store {self.url}: {error}") from None

    def remove_empty_folders(self, job: str) -> None:
        """Remove the empty folders of a job in a directory store, so that a removed job is not listed any more."""
        if self.local:
            self._fs.remove_empty_folders(f"{self._root}/jobs/{check_job_name(job)}")

    def _put(self, key: str, lines: bytes) -> str:
        return self._put_bytes(key, gzip.compress(lines, compresslevel=1, mtime=0))

    def _put_bytes(self, key: str, data: bytes) -> str:
        """Write an object. It appears whole or not at all."""
        path = f"{self._root}/{key}"
        try:
            if self.local:
                self._pipe_local(path, data)
                return path
            if not self._made:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            if self._puts is None or not self._puts.put(path, data):
                self._fs.pipe_file(path, data)
            self._made = self._puts is not None  # it has no folders: its bucket was made, or looked for, by a request
        except Exception as error:
            raise not_written(path, error, where=f" in store {self.url}") from None
        return path

    def _pipe_local(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(path, data)
        except FileNotFoundError:  # of its folders, some are made by its first object
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)

    def _protocols(self) -> tuple[str, ...]:
        protocol: Any = self._fs.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    def _list(self, path: str) -> list[str]:
        try:
            entries: list[dict[str, Any]] = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise TachoscopeError(f"could not read store {self.url}: {error}") from None
        return [str(entry["name"]) for entry in entries if entry["type"] == "directory"]
