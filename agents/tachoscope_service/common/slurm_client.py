"""Runs Slurm's own clients with a limit of time and of output."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from tachoscope_core.errors import TachoscopeError

TIMEOUT_SECONDS = 60.0
MOST_BYTES = 256 << 20
_CHUNK = 1 << 16
_MOST_SAID = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client printed. `said`: the first line on stderr."""

    code: int
    output: str
    said: str


def ask(command: Sequence[str], *, seconds: float = TIMEOUT_SECONDS, most_bytes: int = MOST_BYTES) -> Answer:
    """Run a client; its tables have Unix seconds, since their times have no zone otherwise.

    Args:
        command: its name, which is looked for on the PATH, and its arguments.

    Raises:
        TachoscopeError: the program is not installed, does not end in time, or prints more.
    """
    name = command[0]
    program = shutil.which(name)
    if not program:
        raise TachoscopeError(
            f"{name} is not installed on this machine", fix="run it on a Slurm host and give its output as a file"
        )
    environment = {**_without_options(os.environ), "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    if "--json" in command:
        # Its times are Unix seconds anyway, and Slurm 22.05 cannot parse its own default of --endtime in this format.
        del environment["SLURM_TIME_FORMAT"]
    try:
        running = subprocess.Popen(
            [program, *command[1:]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise TachoscopeError(f"{name} does not answer: {error}") from None
    with running:
        try:
            output, said = _read(running, name, time.monotonic() + seconds, most_bytes)
            running.wait(seconds)
        except TimeoutError:
            raise TachoscopeError(f"{name} does not answer within {seconds:g} s") from None
        except subprocess.TimeoutExpired:
            raise TachoscopeError(f"{name} does not end within {seconds:g} s") from None
        finally:
            running.kill()
    text = output.decode(errors="replace")
    return Answer(running.returncode, text, said.decode(errors="replace").strip().partition("\n")[0])


def _without_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what users set for their own views: SQUEUE_STATES and the like hide jobs."""
    return {name: value for name, value in environment.items() if not name.startswith(("SQUEUE_", "SINFO_", "SACCT_"))}


def _read(running: subprocess.Popen[bytes], name: str, until: float, most_bytes: int) -> tuple[bytes, bytes]:
    """Return what it prints until it closes both; raise TimeoutError at `until`, by the monotonic clock."""
    read: dict[IO[bytes], bytearray] = {stream: bytearray() for stream in (running.stdout, running.stderr) if stream is not None}
    with selectors.DefaultSelector() as selector:
        for stream in read:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(until - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                    continue
                stream = next(one for one in read if one is key.fileobj)
                read[stream] += chunk
                if stream is running.stderr:
                    del read[stream][_MOST_SAID:]
                elif len(read[stream]) > most_bytes:
                    raise TachoscopeError(f"{name} prints more than {most_bytes >> 20} MiB")
    output, said = read.values()
    return bytes(output), bytes(said)
