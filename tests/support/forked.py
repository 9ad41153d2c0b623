"""The command `tachoscope` in a process of its own, without the half second and more in which a new Python imports it.

The standard library's fork server imports the command once for each worker of pytest and forks a process for each call, with its
own environment, standard streams and signals. The server has no threads, and nothing of the tests' state. What is about a start,
imports or memory needs a process that is executed.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, reduction
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

IMPORTED = (
    *("tachoscope_cli.main", "tachoscope_cli.launcher.run", "typer._adapters", "fsspec.implementations.local"),
    *("tachoscope_analyzers.failures.report", "tachoscope_cli.app"),
    *("tachoscope_cli.commands.agent", "tachoscope_cli.commands.watch", "tachoscope_node.service", "tachoscope_watch.service"),
    "pynvml",
)
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(list(IMPORTED))


class Forked:
    """A process that runs `tachoscope` with these words; used like a `subprocess.Popen`.

    Args:
        stdout, stderr: descriptors that it writes to. cwd: its folder; None: that of this process.
    """

    def __init__(
        self, words: Sequence[str], environ: Mapping[str, str], *, stdout: int, stderr: int, cwd: Path | None = None
    ) -> None:
        streams = (_Inherited(stdout), _Inherited(stderr))
        self._words = tuple(words)
        self._process = _FORKING.Process(target=_command, args=(self._words, str(cwd or Path.cwd()), dict(environ), streams))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutExpired(self._words, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(words: tuple[str, ...], *, cwd: Path, environ: dict[str, str], outputs: Path, seconds: float) -> CompletedProcess[str]:
    """Run `tachoscope` with these words. outputs: a folder for what it writes.

    Raises:
        TimeoutExpired: it took longer; it is killed.
    """
    files = [outputs / f"forked-{name}" for name in ("stdout", "stderr")]
    with files[0].open("wb") as out, files[1].open("wb") as err:
        process = Forked(words, environ, stdout=out.fileno(), stderr=err.fileno(), cwd=cwd)
    try:
        code = process.wait(seconds)
    except TimeoutExpired:
        process.kill()
        process.wait()
        raise
    return CompletedProcess(["tachoscope", *words], code, *(file.read_text() for file in files))


def cpu_seconds() -> float:
    """Return the processor seconds of the server and of all processes that it forked."""
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class _Inherited:
    """A descriptor, which the forked process gets as a number of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._descriptor),)


def _received(passed: Any) -> int:
    return int(passed.detach())


def _command(words: tuple[str, ...], cwd: str, environ: dict[str, str], streams: tuple[int, int]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
    for stream in set(streams):
        os.close(stream)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # The loader read this before: who asks for such a library by its name gets the one that is loaded.
    for folder in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        for library in Path(folder).glob("*.so.*") if folder else ():
            ctypes.CDLL(str(library))
    from tachoscope_cli.main import main

    main(words)
