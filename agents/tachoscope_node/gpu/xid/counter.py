"""Xid errors, counted: which GPU reported which, how often and when last; the same after a restart of the agent.

Knows nothing of where they come from: NVML's events and the kernel log both tell `XidCounter.seen`.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError, not_written
from tachoscope_core.metrics.gpu import ACTIONS, GPU_XID_ERRORS, GPU_XID_LAST_SEEN
from tachoscope_node.common.boot import boot_id
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family

PAIR_SECONDS = 10.0
"""One error that NVML and the kernel log both report within this time counts once: either is read some ticks late."""
MAX_CODES = 64
"""Codes that a GPU has series for; those beyond are counted together as `other`."""
MAX_GPUS = 64
OTHER = -1
_MAX_UNPAIRED = 64
_MAX_DETAIL = 200
_CATALOGUE = Path(__file__).with_name("xids.yaml")

Severity = Literal["none", "degraded", "unhealthy"]


@dataclass(frozen=True, slots=True)
class Xid:
    """What an error means. source: URL. severity: what it makes of the GPU's health."""

    code: int
    name: str
    means: str
    severity: Severity
    action: str
    source: str

    @property
    def label(self) -> str:
        """Return the value of the label `xid`."""
        return "other" if self.code == OTHER else str(self.code)


@dataclass(frozen=True, slots=True)
class XidError:
    """An error of one GPU.

    Attributes:
        last_seen: Unix seconds. detail: what the kernel log said of the last one.
        reset_since: the GPU was reset, or the node booted, after the last one.
    """

    uuid: str
    index: str
    xid: Xid
    count: int
    last_seen: float
    detail: str
    reset_since: bool


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    codes: list[int]
    name: str
    nvidia: str
    severity: Severity
    action: str
    means: str
    source: str = "catalogue"


class _Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, str]
    xids: list[_Entry]


@functools.cache
def catalogue() -> Mapping[int, Xid]:
    """Return all known errors by code.

    Raises:
        TachoscopeError: the file is not as it must be.
    """
    try:
        read = msgspec.convert(located_yaml.read_plain(_CATALOGUE).data, _Catalogue)
        if wrong := {entry.action for entry in read.xids} - set(ACTIONS):
            raise TachoscopeError(f"{_CATALOGUE}: no such action: {', '.join(sorted(wrong))}")
        return {
            code: Xid(code, entry.name, entry.means, entry.severity, entry.action, read.sources[entry.source])
            for entry in read.xids
            for code in entry.codes
        }
    except (msgspec.ValidationError, KeyError) as error:
        raise TachoscopeError(f"{_CATALOGUE}: {error}") from error


def about(code: int) -> Xid:
    """Return what a code means; one that the catalogue lacks degrades the GPU until somebody has looked."""
    means = "NVIDIA's catalogue, as known here, does not have this code."
    return catalogue().get(code) or Xid(code, "unknown", means, "degraded", "inspect_hardware", "")


class Boot(NamedTuple):
    """One boot of the host: its id (empty where the kernel does not tell) and when it was, in Unix seconds."""

    id: str
    seconds: float


def this_boot(proc: str) -> Boot:
    """Return id and begin, in Unix seconds, of the boot that runs."""
    return Boot(boot_id(proc), time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))


class Position(msgspec.Struct):
    """How far the kernel log was read, in which boot; sequence -1: nothing yet."""

    boot: str = ""
    sequence: int = -1


class _Count(msgspec.Struct):
    count: int = 0
    last_seen: float = 0.0
    detail: str = ""
    unpaired: list[tuple[float, str]] = []


class _Gpu(msgspec.Struct):
    index: str = ""
    energy: float = 0.0
    reset_at: float = msgspec.field(default=0.0, name="mended")
    """Unix seconds of the last reset or boot; 0: none was seen."""
    codes: dict[int, _Count] = {}


class _SavedCounts(msgspec.Struct):
    boot: str = ""
    position: Position | None = None
    gpus: dict[str, _Gpu] = {}


class XidCounter:
    """Counts errors by GPU and code; any thread may call it.

    Args:
        state: the agent's state directory, or None to remember nothing. boot: the host's.
        log: gets a line for each new error, at most one a minute for the same.
    """

    def __init__(self, state: Path | None, boot: Boot, log: Log) -> None:
        self._file = state / "xids.json" if state is not None else None
        self._log = log
        self._lock = threading.Lock()
        self._saved, self._changed = _load(self._file), False
        if self._saved.boot != boot.id:
            self._saved.boot = boot.id
            for gpu in self._saved.gpus.values():
                gpu.reset_at = max(gpu.reset_at, boot.seconds)

    def count_error(self, uuid: str, xid: int, unix_seconds: float, source: str, detail: str = "") -> bool:
        """Count an error unless another source reported the same one just before; say whether it was counted.

        Args:
            uuid: of the GPU, or its PCI address where nobody knows the UUID. source: nvml or kernel_log.
            detail: the kernel's words.
        """
        with self._lock:
            gpu = self._gpu(uuid)
            code = xid if xid in gpu.codes or len(gpu.codes) < MAX_CODES else OTHER
            count = gpu.codes.setdefault(code, _Count())
            count.last_seen = max(count.last_seen, unix_seconds)
            count.detail = "".join(letter for letter in detail if letter.isprintable())[:_MAX_DETAIL] or count.detail
            self._changed = True
            if _paired(count.unpaired, unix_seconds, source):
                return False
            count.count += 1
            index = gpu.index
        known = about(xid)
        self._log.warning(
            f"xid {uuid} {xid}", f"GPU {index or '?'} ({uuid}): Xid {xid}, {known.name}. {known.means} Action: {known.action}."
        )
        return True

    def know(self, uuid: str, index: str, unix_seconds: float, energy_joules: float | None, *, back: bool = False) -> None:
        """Note which GPU it is, and whether it was reset: the driver's energy counter then starts again.

        Args:
            back: it was lost and is there again, which it cannot be without a reset.
        """
        with self._lock:
            gpu = self._saved.gpus.get(uuid)
            if gpu is None and len(self._saved.gpus) < MAX_GPUS:
                gpu = self._saved.gpus[uuid] = _Gpu()
            if gpu is None:
                return
            if back or (energy_joules is not None and energy_joules < gpu.energy):
                gpu.reset_at = unix_seconds
                self._changed = self._changed or bool(gpu.codes)
            gpu.index = index
            gpu.energy = energy_joules if energy_joules is not None else gpu.energy

    def all(self) -> list[XidError]:
        """Return all errors, those of the last minutes first."""
        with self._lock:
            found = [
                XidError(uuid, gpu.index, about(code), count.count, count.last_seen, count.detail, count.last_seen <= gpu.reset_at)
                for uuid, gpu in self._saved.gpus.items()
                for code, count in gpu.codes.items()
            ]
        return sorted(found, key=lambda seen: -seen.last_seen)

    def position(self) -> Position | None:
        """Return the position in the kernel log, or None before the first read."""
        with self._lock:
            return self._saved.position

    def read_to(self, position: Position) -> None:
        """Note the position in the kernel log. It is saved with the next error: lines that count nothing may be read again."""
        with self._lock:
            before, self._saved.position = self._saved.position, position
            self._changed = self._changed or before is None or before.boot != position.boot

    def families(self) -> list[Family]:
        """Return the metrics after saving their values, so that counters never decrease."""
        self.save()
        errors = self.all()
        return [
            Family(GPU_XID_ERRORS, [((seen.index, seen.uuid, seen.xid.label), float(seen.count)) for seen in errors]),
            Family(GPU_XID_LAST_SEEN, [((seen.index, seen.uuid, seen.xid.label), seen.last_seen) for seen in errors]),
        ]

    def save(self) -> None:
        """Save changes. If the disk is full, log it and try again next time."""
        with self._lock:
            if self._file is None or not self._changed:
                return
            content = msgspec.json.encode(self._saved)
            self._changed = False
        temporary = self._file.with_name(f".{self._file.name}.partial")
        try:
            temporary.write_bytes(content)
            os.replace(temporary, self._file)
        except OSError as error:
            self._changed = True
            self._log.warning("xids", str(not_written(self._file, error)))

    def _gpu(self, uuid: str) -> _Gpu:
        gpus = self._saved.gpus
        if uuid not in gpus and len(gpus) >= MAX_GPUS:
            uuid = "other"
        return gpus.setdefault(uuid, _Gpu())


def _paired(unpaired: list[tuple[float, str]], unix_seconds: float, source: str) -> bool:
    """Take the other source's report of the same error off the list and say so, or put this one on it."""
    unpaired[:] = [report for report in unpaired[-_MAX_UNPAIRED:] if abs(unix_seconds - report[0]) <= PAIR_SECONDS]
    for report in unpaired:
        if report[1] != source:
            unpaired.remove(report)
            return True
    unpaired.append((unix_seconds, source))
    return False


def _load(file: Path | None) -> _SavedCounts:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_SavedCounts) if file is not None else _SavedCounts()
    except (OSError, msgspec.DecodeError):  # a file of another version is as good as none
        return _SavedCounts()
