"""Where ranks and days of a job are analysed: in this process and its threads, in local processes, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tachoscope_analyzers.trace.reading.read import SWITCH_SECONDS
from tachoscope_core.errors import TachoscopeError

_DASK = "dask://"
CONNECT_SECONDS = 15
WORKER_SECONDS = 30
"""A scheduler without workers is given so long; the task that it is given first makes one that can start workers do so."""


class InProcess(Executor):
    """Runs each call at once, in the thread that submits it."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function now; return a future that is done, with its result or exception."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def executor_for(address: str, tasks: int, *, in_threads: bool = False) -> Iterator[Executor]:
    """Give the executor of an address: `local`, or `dask://host:port` of a scheduler.

    Local is a pool of as many processes as there are cores for this one, at most one for each task; a single task, or all tasks on
    a single core, stay in this process.

    Args:
        in_threads: local is a pool of threads of this process.

    Raises:
        TachoscopeError: the address is neither, or nothing answers there.
    """
    if address.startswith(_DASK):
        with _dask_client(address.removeprefix(_DASK)) as client, client.get_executor() as executor:
            _wait_for_worker(client, address.removeprefix(_DASK))
            yield executor
        return
    if address != "local":
        raise TachoscopeError(f"{address!r} is not an executor", fix="use local or dask://host:port")
    workers = min(usable_cores(), tasks)
    if workers < 2:
        yield InProcess()
        return
    if in_threads:
        with _threads(workers) as threads:
            yield threads
        return
    import multiprocessing  # a trace alone needs no processes
    from concurrent.futures import ProcessPoolExecutor

    # A forked child may inherit locks that threads of this process hold; a spawned one starts clean.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_leave_interrupts)
    try:
        yield pool
    except KeyboardInterrupt:  # the workers leave it to this process, and what they read is wanted no more
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _threads(count: int) -> Iterator[Executor]:
    pool = ThreadPoolExecutor(count, thread_name_prefix="tachoscope-trace")
    before, wait = sys.getswitchinterval(), True
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield pool
    except KeyboardInterrupt:  # said at once; the process ends when those that were begun are done
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)
        sys.setswitchinterval(before)


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores this process may use: a container may have few of its machine's (`limits.cpu` in Kubernetes).

    Args:
        cgroup: where the limits of the container are, of version 2 or 1 of the kernel's interface.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):  # without a limit the first word is "max" or -1
            quota, period = " ".join((cgroup / name).read_text() for name in files).split()
            if int(quota) > 0:
                return max(min(cores, int(quota) // int(period)), 1)
    return cores


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _dask_client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise TachoscopeError(f"{_DASK}{address} needs Dask", fix="pip install 'tachoscope[dask]'") from None
    try:
        return Client(f"tcp://{address}", timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise TachoscopeError(
            f"no Dask scheduler answers at {address}: {error or type(error).__name__}",
            fix="start one with `dask scheduler`, workers with `dask worker`; they must see the same files under the same paths",
        ) from None


def _wait_for_worker(client: Any, address: str) -> None:
    first = client.submit(os.getpid, pure=False)
    try:
        first.result(timeout=WORKER_SECONDS)
    except TimeoutError:
        raise TachoscopeError(
            f"the Dask scheduler at {address} had no available worker for {WORKER_SECONDS} s",
            fix=f"start workers with `dask worker {address}`; they must see the same files under the same paths",
        ) from None
    finally:
        first.release()
