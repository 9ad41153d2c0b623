"""Results of `tachoscope preflight`: `preflight/host=<host>/<milliseconds>.json.gz`, written by that host only.

The newest results of all hosts are the distribution that a node is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store, host_folder, is_trusted, unpacked

MOST_KEPT = 20
"""Results of a host; it removes its own older ones."""
_MOST_HOSTS = 5000
_MOST_BYTES = 1 << 20
_NAME = re.compile(r"host=(?P<host>[A-Za-z0-9._-]+)/(?P<time>\d{1,15})\.json\.gz")


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A rate, of which more is better.

    Attributes:
        name: with its unit, such as `memory_copy_bytes_per_second`. device: such as `cuda:0`; empty: the host.
        comparable_with: equal for results that may be compared: the hardware, and the software where it matters.
        median: of the repetitions; None: there is none. spread_ratio: their robust standard deviation over the median.
        rounds: how often it was measured; the best round counts.
        error: why it could not be measured, or what was wrong. broken: the error is the node's.
    """

    name: str
    device: str = ""
    comparable_with: str = ""
    median: float | None = None
    spread_ratio: float = 0.0
    repetitions: int = 0
    rounds: int = 1
    error: str = ""
    broken: bool = False


class NodeResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one host measured at `time`, Unix seconds. `verdict`, `why`: on the host; empty: not told, as where most were unfit."""

    host: str
    time: float
    measurements: list[Measurement]
    verdict: str = ""
    why: str = ""


def write(store: Store, result: NodeResult) -> str:
    """Write a result, remove the host's oldest ones, and return the path of the object.

    Raises:
        TachoscopeError: the store cannot be written.
    """
    path = store.write_preflight(result.host, f"{round(result.time * 1000):015d}", msgspec.json.encode(result))
    own = sorted(store.find(f"preflight/host={host_folder(result.host)}"))
    store.remove(own[:-MOST_KEPT])
    return path


def read_all(store: Store, faults: list[str]) -> Iterator[NodeResult]:
    """Yield the newest results of each host. What cannot be read, or is another user's who is not root, is a line in `faults`.

    Raises:
        TachoscopeError: the store cannot be listed.
    """
    for path in _newest(store):
        try:
            yield read(store, path)
        except Exception as error:  # each object store has its own; the other results count all the same
            faults.append(f"{path} was left out: {error}")


def since(store: Store, time: float) -> list[str]:
    """Return the paths of the newest results of each host that were measured after a time, Unix seconds.

    Raises:
        TachoscopeError: the store cannot be listed.
    """
    return [path for path in _newest(store) if int(path.rsplit("/", 1)[-1].partition(".")[0]) > time * 1000]


def _newest(store: Store) -> list[str]:
    by_host: dict[str, list[str]] = {}
    for path in store.find("preflight"):
        match = _NAME.fullmatch("/".join(path.split("/")[-2:]))
        if match and (match["host"] in by_host or len(by_host) < _MOST_HOSTS):
            by_host.setdefault(match["host"], []).append(path)
    return [path for paths in by_host.values() for path in sorted(paths)[-MOST_KEPT:]]


def read(store: Store, path: str) -> NodeResult:
    """Return a result. Raises whatever the object store raises, and TachoscopeError for another user's who is not root."""
    uid, data = store.files.with_owner(path) if store.local else (0, store.files.cat_file(path))
    if not is_trusted(uid):
        raise TachoscopeError(f"it belongs to user {uid}")
    return msgspec.json.decode(unpacked(data, _MOST_BYTES), type=NodeResult)
