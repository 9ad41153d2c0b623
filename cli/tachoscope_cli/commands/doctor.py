"""`tachoscope doctor`: what this machine can and cannot collect, and why."""

from __future__ import annotations

import importlib.metadata
import os
import queue
import shutil
import sys
import threading
from pathlib import Path
from typing import Literal

from rich.table import Table
from rich.text import Text

from tachoscope.sampling import unlocked_stacks
from tachoscope.spool.writer import MIN_FREE_BYTES, MIN_FREE_SHARE
from tachoscope.timing import procfs
from tachoscope_cli.common.answers import Check, Examined
from tachoscope_core import extras, native
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import redact
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store

_DRIVER_SECONDS = 10.0
"""A driver without persistence mode may take seconds to start."""


def examine(store_url: str) -> Examined:
    """Examine the machine. Nothing is changed, except that a missing store or spool directory is tried out beside its place."""
    checks = [
        _check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}"),
        *_packages(),
        _native(),
        _running_lines(),
        _spool(spool.default_root()),
        _store(store_url),
        _agent(spool.default_root()),
        _thread_clock(),
        _wait_reasons(),
        _pressure(),
        _accelerator(),
        _gpu_metrics(),
    ]
    return Examined(bad_checks=sum(one.state == "bad" for one in checks), checks=checks)


def rendered(found: Examined) -> Table:
    """Return a table for the terminal, one line a check."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    words = {"ok": Text("yes", style="green"), "no": Text("no", style="yellow"), "bad": Text("FIX", style="bold red")}
    for check in found.checks:
        table.add_row(words[check.state], check.name, check.detail)
    return table


def _check(name: str, state: Literal["ok", "no", "bad"], detail: str) -> Check:
    return Check(name=name, state=state, detail=redact(detail))


def _packages() -> list[Check]:
    wanted = {
        "torch": "steps are seen without a change to the code",
        "lightning": "Lightning's steps, validation and checkpoints",
        "transformers": "Hugging Face Trainer's steps, evaluation and checkpoints",
        "accelerate": "Accelerate's checkpoints",
    }
    rows = []
    for name, gives in wanted.items():
        try:
            rows.append(_check(name, "ok", f"{importlib.metadata.version(name)}: {gives}"))
        except importlib.metadata.PackageNotFoundError:
            rows.append(_check(name, "no", "not installed in this Python"))
    if missing := extras.missing("analyze"):
        rows.append(_check("analysis", "no", f"`analyze` and `demo` need {missing[0]}: pip install 'tachoscope[analyze]'"))
    else:
        rows.append(_check("analysis", "ok", f"pandas {importlib.metadata.version('pandas')}"))
    return rows


def _native() -> Check:
    modules = native.all_native()
    absent = [f"{one.name} ({one.reason})" for one in modules if one.module is None]
    if absent:
        return _check("native modules", "no", f"Python does the same work, slower: {', '.join(absent)}")
    return _check("native modules", "ok", ", ".join(one.does for one in modules))


def _running_lines() -> Check:
    if reason := unlocked_stacks.why_not():
        return _check("lines", "no", f"of a running thread by signals, in a tight loop perhaps the neighbouring line: {reason}")
    return _check("lines", "ok", "of a running thread, read without the interpreter's lock")


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _spool(root: Path) -> Check:
    place = _existing(root)
    if root.is_dir() and (owner := root.stat().st_uid) not in {0, os.geteuid()}:
        return _check("spool", "bad", f"{root} belongs to user {owner}, neither to this one nor to root (set $TACHOSCOPE_SPOOL)")
    if not os.access(place, os.W_OK):
        return _check("spool", "bad", f"no permission to write {place} (set $TACHOSCOPE_SPOOL)")
    usage = shutil.disk_usage(place)
    needed = min(MIN_FREE_SHARE * usage.total, MIN_FREE_BYTES)
    if usage.free < needed:
        return _check("spool", "bad", f"{root}: {usage.free >> 20} MiB free, under the {int(needed) >> 20} MiB that stay free")
    return _check("spool", "ok", f"{root}, {usage.free >> 20} MiB free")


def _store(url: str) -> Check:
    try:
        jobs = len(Store(url).jobs())
    except TachoscopeError as error:
        return _check("store", "bad", str(error))
    if "://" not in url and not os.access(_existing(Path(url)), os.W_OK):
        return _check("store", "bad", f"no permission to write {url}")
    return _check("store", "ok", f"{url}, {jobs} job{'s' if jobs != 1 else ''}")


def _agent(root: Path) -> Check:
    agent = spool.live_agent(root)
    if agent is None:
        return _check(
            "node agent",
            "no",
            f"no agent is running for {root}: `run` ships its records itself, and no metrics are exported",
        )
    return _check("node agent", "ok", f"process {agent.pid}, {agent.url}/metrics, ships to {agent.store}")


def _thread_clock() -> Check:
    if procfs.RunDelay().measured:
        return _check("waiting for a core", "ok", "/proc/thread-self/schedstat")
    return _check("waiting for a core", "no", "this kernel keeps no schedstat: cpu_contention is not measured")


def _wait_reasons() -> Check:
    kind = procfs.waits_for(os.getpid())
    if kind == "unknown":
        return _check("what a loader waits for", "no", "/proc/<pid>/syscall cannot be read: input classes stay unknown")
    return _check("what a loader waits for", "ok", "/proc/<pid>/syscall, sampled ten times a second")


def _pressure() -> Check:
    if procfs.pressure_seconds("cpu") is None:
        return _check("pressure (PSI)", "no", "/proc/pressure does not exist: less evidence for contention")
    return _check("pressure (PSI)", "ok", "/proc/pressure")


def _accelerator() -> Check:
    devices = sorted(Path("/dev").glob("nvidia[0-9]*")) + sorted(Path("/dev/dri").glob("renderD*"))
    if not devices:
        return _check("accelerator", "no", "no device file: training on CPU is watched, with phases from the thread's clocks")
    return _check("accelerator", "ok", f"{len(devices)} device files: phases are timed with device events once a job uses CUDA")


def _gpu_metrics() -> Check:
    """Query the driver, which may hang, in a daemon thread."""
    answers: queue.SimpleQueue[Check] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_ask_driver()), daemon=True).start()
    try:
        return answers.get(timeout=_DRIVER_SECONDS)
    except queue.Empty:
        return _check("GPU metrics", "bad", f"the NVIDIA driver has not answered for {_DRIVER_SECONDS:g} s")


def _ask_driver() -> Check:
    try:
        from tachoscope_node.collectors.collector import NotSupportedError
        from tachoscope_node.gpu.nvml import driver as nvml
    except ImportError as error:
        return _check("GPU metrics", "no", f"the agent needs {error.name}: pip install 'tachoscope[agent]'")
    try:
        driver = nvml.start(nvml.load())
        names = [driver.identify(position)[1].model for position in range(driver.count())]
        driver.stop()
    except NotSupportedError as error:
        return _check("GPU metrics", "no", str(error))
    except Exception as error:  # whatever a driver's binding raises
        return _check("GPU metrics", "bad", f"the NVIDIA driver does not work: {error}")
    return _check("GPU metrics", "ok", f"{len(names)} GPUs by NVML ({', '.join(sorted(set(names)))}), driver {driver.version}")
