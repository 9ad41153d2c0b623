"""The quarantine list of a job: shards of its data set that failed on several ranks or attempts, which a loader may skip.

One JSON document, kept on each node (`<spool root>/quarantine/<job>.json`) and in the store (`jobs/<job>/quarantine/<host>.json`).
Documents of several nodes merge without a conflict, in any order and any number of times: nobody needs a lock across nodes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage.spool import make_root
from tachoscope_core.whole_files import write_whole

if TYPE_CHECKING:  # training processes import this module, and need no store
    from tachoscope_core.storage.store import Store

PATH_VARIABLE = "TACHOSCOPE_QUARANTINE"
DIRECTORY = "quarantine"
MAX_NAME = 512
MAX_BYTES = 8 << 20
"""A longer document is not read, nor more of what those of all nodes of a job say: they are foreign input."""
MAX_FAILURES = 64
"""Failures kept of a shard, the newest: two decide."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")
_PATH_WORD = re.compile(r"(?:^|\s)['\"]?(/[^\s'\"]+)")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A rank could not read a shard in an attempt of the job; `time` in Unix seconds is when it last could not."""

    rank: int
    attempt: int
    time: float
    error: str = ""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a shard that failed. Times are Unix seconds, 0: never.

    Attributes:
        failures: one for each rank and attempt.
        quarantined: when it was last put on the list. released: when a person last took it off; failures before that do not count.
    """

    failures: tuple[Failure, ...] = ()
    quarantined: float = 0.0
    released: float = 0.0

    @property
    def is_listed(self) -> bool:
        """Whether it is on the list now."""
        return self.quarantined > self.released

    def counting(self) -> list[Failure]:
        """Return the failures since it was last released."""
        return [failure for failure in self.failures if failure.time > self.released]


Shards = dict[str, Shard]
"""All shards of a job that failed, by the name that `shard_name` gives."""


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    shards: Shards = {}


_decoder = msgspec.json.Decoder(_Document)


def shard_name(shard: str | os.PathLike[str]) -> str:
    """Return the name under which a path or URL is recorded and listed; a name names itself.

    Of a URL user, password, query and fragment stay out: signed URLs carry keys there, which differ each time they are signed. Of a
    webdataset `pipe:` command only the URL or path in it stays, else its program and a hash of the whole.
    """
    name = os.fspath(shard)
    if name.startswith("pipe:"):
        name = _of_command(name.removeprefix("pipe:").strip())
    if "://" in name:
        name = _bare_url(name)
    elif name:
        name = os.path.normpath(name.removeprefix("file:"))
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}#{_digest(name)}"


def _of_command(command: str) -> str:
    url, path = _URL.search(command), _PATH_WORD.search(command, len(command.split(" ")[0]))
    if url is not None:
        return url[0]
    return path[1] if path is not None else f"pipe:{command.split(' ')[0]}#{_digest(command)}"


def _bare_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # no URL after all, such as a host in brackets that are never closed
        return f"url#{_digest(url)}"
    if parts.scheme == "file":
        return os.path.normpath(parts.path)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]


def add_failure(shards: Shards, shard: str, failure: Failure) -> None:
    """Add a failure; a later one of the same rank and attempt takes the place of the earlier."""
    shards[shard] = _merged(shards.get(shard, Shard()), Shard(failures=(failure,)))


def merge(shards: Shards, others: Mapping[str, Shard]) -> bool:
    """Add to `shards` what another document knows; say whether that was anything new."""
    changed = False
    for name, other in others.items():
        known = shards.get(name, Shard())
        if (merged := _merged(known, other)) != known:
            shards[name] = merged
            changed = True
    return changed


def _merged(one: Shard, other: Shard) -> Shard:
    latest: dict[tuple[int, int], Failure] = {}
    for failure in (*one.failures, *other.failures):
        known = latest.get((failure.rank, failure.attempt))
        if known is None or (failure.time, failure.error) > (known.time, known.error):
            latest[failure.rank, failure.attempt] = failure
    failures = sorted(latest.values(), key=lambda failure: (failure.time, failure.attempt, failure.rank))
    return Shard(
        failures=tuple(failures[-MAX_FAILURES:]),
        quarantined=max(one.quarantined, other.quarantined),
        released=max(one.released, other.released),
    )


def listed_names(shards: Mapping[str, Shard]) -> frozenset[str]:
    """Return the names of the shards that jobs must skip."""
    return frozenset(name for name, shard in shards.items() if shard.is_listed)


def path_of(root: Path, job: str) -> Path:
    """Return where the list of a job lies below the spool's root."""
    return root / DIRECTORY / f"{check_job_name(job)}.json"


def encode(job: str, shards: Mapping[str, Shard]) -> bytes:
    """Return the list of a job as indented JSON that ends with a newline."""
    return msgspec.json.format(msgspec.json.encode(_Document(job=job, shards=dict(shards))), indent=1) + b"\n"


def decode(data: bytes, where: str) -> Shards:
    """Return the shards of a document; `where` it lies is for the error.

    Raises:
        TachoscopeError: it is not a quarantine list.
    """
    fix = "remove it: it is made again as shards fail"
    if len(data) > MAX_BYTES:
        raise TachoscopeError(f"{where} is larger than {MAX_BYTES >> 20} MiB, too large for a quarantine list", fix=fix)
    try:
        return dict(_decoder.decode(data).shards)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TachoscopeError(f"{where} is not a quarantine list: {error}", fix=fix) from None


def from_store(store: Store, job: str) -> Shards:
    """Return what all nodes and people wrote about a job's shards.

    Raises:
        TachoscopeError: the store cannot be read, or holds something else there.
    """
    shards: Shards = {}
    room = MAX_BYTES
    for where, data in store.read_quarantine(job):
        if merge(shards, decode(data, where)):
            room -= len(data)
        if room < 0:
            raise TachoscopeError(f"the quarantine lists in {where} say more than {MAX_BYTES >> 20} MiB", fix="remove some")
    return shards


def load(path: Path) -> Shards:
    """Read a list; one that is not there is empty.

    Raises:
        TachoscopeError: it cannot be read, is not a list, or belongs to another user, who could then choose which data is skipped.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            if owner not in {0, os.geteuid()}:
                raise TachoscopeError(f"{path} belongs to user {owner}, not to this one or root", fix=f"remove {path}")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror}") from None
    return decode(data, str(path))


def save(path: Path, job: str, shards: Mapping[str, Shard]) -> None:
    """Write a list, whole or not at all. Its folder is one that everybody may write to: a link there is not followed.

    Raises:
        TachoscopeError: it cannot be written.
    """
    try:
        folder = _folder(path.parent)
        try:
            write_whole(folder, path.name, encode(job, shards), mode=0o644)  # jobs of other users may read it
        finally:
            os.close(folder)
    except OSError as error:
        raise TachoscopeError(f"could not write {path}: {error.strerror}") from None


def _folder(path: Path) -> int:
    """Return a descriptor of the folder, created if missing: all users may write, none can replace another's files."""
    make_root(path.parent)
    try:
        path.mkdir()
        made = True
    except FileExistsError:
        made = False
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if made:
        with contextlib.suppress(PermissionError):  # another user put a folder of his own there meanwhile
            os.fchmod(descriptor, 0o1777)
    return descriptor


def without_shards(shards: Iterable[str], names: frozenset[str]) -> list[str]:
    """Return the paths and URLs whose name is not among `names`, in their order."""
    return [shard for shard in shards if shard_name(shard) not in names] if names else list(shards)
