"""The command `tachoscope` in a process of its own, without the half second in which a new Python imports it.

The standard library's fork server imports the command once for each worker of pytest and forks a process for each call. It has no
threads, and nothing of the tests' state.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

IMPORTED = (
    *("tachoscope_cli.main", "tachoscope_cli.launcher.run", "typer._adapters", "fsspec.implementations.local"),
    *("tachoscope_analyzers.failures.report", "tachoscope_cli.app"),
)
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(list(IMPORTED))


def run(words: tuple[str, ...], *, cwd: Path, environ: dict[str, str], outputs: Path, seconds: float) -> CompletedProcess[str]:
    """Run `tachoscope` with these words. outputs: a folder for what it writes.

    Raises:
        TimeoutExpired: it took longer; it is killed.
    """
    files = [outputs / f"forked-{name}" for name in ("stdout", "stderr")]
    process = _FORKING.Process(target=_command, args=(words, str(cwd), environ, list(map(str, files))))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutExpired(words, seconds)
    out, err = (file.read_text() for file in files)
    code = process.exitcode
    process.close()
    return CompletedProcess(["tachoscope", *words], code, out, err)


def _command(words: tuple[str, ...], cwd: str, environ: dict[str, str], files: list[str]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    from tachoscope_cli.main import main

    main(words)


def cpu_seconds() -> float:
    """Return the processor seconds of the server and of all processes that it forked."""
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
