"""A driver library that says what a test wants: the real nvidia-ml-py loads it, in this process or in another.

    driver = Driver(tmp_path, "h100x8")
    driver.set_gpu(3, utilization_gpu=97, throttle_ns__power_cap=5_000_000)
    with driver.in_process():
        pynvml.nvmlDeviceGetUtilizationRates(pynvml.nvmlDeviceGetHandleByIndex(3)).gpu  # 97
    subprocess.run([...], env={**os.environ, **driver.environment()})

Keys and their units are in fake_nvml_keys.py. In keyword arguments `__` stands for the point of a key.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import itertools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pynvml

from fake_nvml_keys import check

HERE = Path(__file__).parent
PROFILES = tuple(sorted(path.stem for path in (HERE / "profiles").glob("*.txt")))
LIBRARY = "libnvidia-ml.so.1"
Value = str | int | float

_SEEN_SECONDS = 0.003
"""Longer than the 2 ms for which the library does not look at the file again (CHECK_NS in state.c)."""
_COUNT = struct.Struct("56sQQ")
"""Name of a function, a mark, and how often it was called: `Count` in calls.c."""


FLAGS = ("-O2", "-fPIC", "-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra")
BUILD = HERE.parents[1] / "build"


def _built(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder of build/ that `make` has filled, once for all processes until a source changes."""
    sources = b"".join(path.read_bytes() for path in sorted(HERE.glob("*.[ch]")))
    folder = BUILD / f"fake-nvml-{hashlib.sha256(sources).hexdigest()[:12]}" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = Path(tempfile.mkdtemp(dir=folder.parent))
            make(made)
            made.rename(folder)
    return folder


def _objects() -> Path:
    """Return the folder of the library's compiled parts."""
    sources = [str(path) for path in sorted(HERE.glob("*.c"))]
    return _built("objects", lambda folder: subprocess.run(["gcc", "-c", *FLAGS, *sources], cwd=folder, check=True))


@functools.cache
def library(missing: frozenset[str] = frozenset()) -> Path:
    """Return the library in which some functions are not to be found, as in that of an old driver.

    Raises:
        ValueError: a function that is to be missing is none of the library.
    """
    if missing:
        whole = ctypes.CDLL(str(library()))
        if unknown := sorted(name for name in missing if not hasattr(whole, name)):
            raise ValueError(f"the fake driver has no {', '.join(unknown)}, so nothing would be missing; see the EXPORTs in {HERE}")
    names = "".join(sorted(missing))
    return _built(f"without-{hashlib.sha256(names.encode()).hexdigest()[:12]}", lambda folder: _link(folder, missing)) / LIBRARY


def _link(folder: Path, missing: frozenset[str]) -> None:
    local = "".join(f"    {name};\n" for name in sorted(missing))
    (folder / "map").write_text("{\n  global: nvml*; fake_nvml*;\n  local:\n" + local + "    *;\n};\n")
    parts = map(str, sorted(_objects().glob("*.o")))
    options = [f"-Wl,--version-script={folder}/map", f"-Wl,-soname,{LIBRARY}", "-lpthread"]
    subprocess.run(["gcc", "-shared", "-o", str(folder / LIBRARY), *parts, *options], check=True)


def profile(name: str) -> dict[str, str]:
    """Return the lines of a profile, by key; `include` names one that it differs from in what it says."""
    path = HERE / "profiles" / f"{name}.txt"
    pairs = (line.split("=", 1) for line in path.read_text().splitlines() if line.strip() and not line.startswith("#"))
    lines = {key.strip(): value.strip() for key, value in pairs}
    included = lines.pop("include", None)
    return {**(profile(included) if included else {}), **lines}


class Driver:
    """A driver with its GPUs, in a folder of its own. What it says changes at once for every process that uses it."""

    def __init__(self, folder: Path, name: str = "h100x8", missing: Iterable[str] = ()) -> None:
        self.folder = folder
        self.state = folder / "state.txt"
        self.library = folder / "lib" / LIBRARY
        self._lines = profile(name)
        for key, value in self._lines.items():
            check(key, value)
        self._calls = folder / "calls"
        self._writes = itertools.count(1)
        self._events = itertools.count(1)
        without = frozenset(self._lines.get("driver.missing", "").replace(",", " ").split()) | frozenset(missing)
        self.library.parent.mkdir(parents=True)
        shutil.copy(library(without), self.library)
        self._write()

    def set(self, lines: Mapping[str, Value] | None = None, /, **more: Value) -> None:
        """Set lines of the state, all in one moment; `none` makes a key absent."""
        new = {key.replace("__", "."): str(value) for key, value in {**(lines or {}), **more}.items()}
        for key, value in new.items():
            check(key, value)
            if key == "driver.missing":
                raise ValueError("driver.missing is settled when the library is linked: Driver(folder, profile, missing=[...])")
        self._lines.update(new)
        self._write()

    def set_gpu(self, gpu: int | str, /, **values: Value) -> None:
        """Set values of a GPU, or with `*` those of all GPUs that have none of their own."""
        self.set({f"gpu.{gpu}.{key}": value for key, value in values.items()})

    def clear(self, *keys: str) -> None:
        """Take lines away. KeyError for one that there is not."""
        for key in keys:
            del self._lines[key.replace("__", ".")]
        self._write()

    def clear_gpu(self, gpu: int | str, /, *keys: str) -> None:
        """Take values of a GPU away, which leaves it with those of all."""
        self.clear(*(f"gpu.{gpu}.{key}" for key in keys))

    def value(self, gpu: int, key: str) -> str | None:
        """Return what the state says of a GPU, None where the key is absent."""
        own = self._lines.get(f"gpu.{gpu}.{key}", self._lines.get(f"gpu.*.{key}", "none"))
        return None if own == "none" else own

    def event(self, gpu: int, xid: int, *, instance: int | None = None, kind: int = 8) -> None:
        """Let an event happen: an Xid, or with `kind` another of nvmlEventType* whose data `xid` then is."""
        where = f"{gpu}" if instance is None else f"{gpu}/{instance}"
        self.set({f"event.{next(self._events)}": f"{kind:#x}:{xid}@{where}"})

    def environment(self) -> dict[str, str]:
        """Return what must be in the environment of a process for it to find this driver."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_STATE": str(self.state),
            "FAKE_NVML_CALLS": str(self._calls),
        }

    @contextlib.contextmanager
    def in_process(self) -> Iterator[None]:
        """Let pynvml in this process use this driver; shut down and forgotten afterwards."""
        before = {name: os.environ.get(name) for name in ("FAKE_NVML_STATE", "FAKE_NVML_CALLS")}
        os.environ |= {name: value for name, value in self.environment().items() if name in before}
        _use(ctypes.CDLL(str(self.library)))
        try:
            yield
        finally:
            while pynvml._nvmlLib_refcount:
                pynvml.nvmlShutdown()
            _use(None)
            for name, value in before.items():
                os.environ.pop(name)
                os.environ |= {name: value} if value is not None else {}

    def calls(self) -> dict[str, int]:
        """Return how often each function was called, by all processes together."""
        content = self._calls.read_bytes()[8:] if self._calls.exists() else b""
        counts = ((name.rstrip(b"\0").decode(), calls) for name, _, calls in _COUNT.iter_unpack(content))
        return {name: calls for name, calls in counts if name}

    def most_at_once(self) -> int:
        """Return how many calls of one process ever ran at the same time; those that wait for events do not count."""
        return int(struct.unpack("Q", self._calls.read_bytes()[:8])[0]) if self._calls.exists() else 0

    def forget_calls(self) -> None:
        """Begin to count again."""
        if self._calls.exists():
            with self._calls.open("r+b") as file:
                file.write(bytes(self._calls.stat().st_size))

    def _write(self) -> None:
        """Replace the file, and wait until no process can hold what it said before for the latest.

        Its time is a number that never repeats: inodes do, and times of the clock too where it ticks slowly.
        """
        new = self.state.with_suffix(".new")
        new.write_text("".join(f"{key} = {value}\n" for key, value in self._lines.items()))
        os.utime(new, ns=(0, time.time_ns() + next(self._writes)))
        new.replace(self.state)
        time.sleep(_SEEN_SECONDS)


def _use(loaded: ctypes.CDLL | None) -> None:
    pynvml.nvmlLib = loaded
    pynvml._nvmlLib_refcount = 0
    pynvml._nvmlGetFunctionPointer_cache.clear()
