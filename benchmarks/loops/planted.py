"""Imported by the script of a planted run: measures the planted fault and counts the steps. The harness copies it beside the run.

Each mark is one appended line, so that it is kept however the process ends. This file needs nothing but the standard library.
"""

import atexit
import os
import time

RANK = int(os.environ.get("RANK", "0"))
_STOP_AFTER = int(os.environ.get("LOOPS_STOP_AFTER_STEPS", "0"))
_FOLDER = os.environ.get("LOOPS_MARKS", ".")

_file = None
_steps = 0
_turns = 0
_began: list = []
_waiting_since = None


def begin() -> None:
    """The planted fault begins."""
    _began.append((time.time(), time.perf_counter(), time.thread_time()))


def end() -> None:
    """The planted fault is over: its wall time and the CPU time of this thread."""
    wall, clock, cpu = _began.pop()
    _write(f"fault {wall:.6f} {time.perf_counter() - clock:.9f} {time.thread_time() - cpu:.9f}\n")


def timed(function):
    """Return the function that makes the input, all of which is measured."""

    def call(*args, **kwargs):
        begin()
        try:
            return function(*args, **kwargs)
        finally:
            end()

    return call


def step() -> None:
    """One iteration of the training loop is over."""
    global _steps, _waiting_since
    _steps += 1
    _waiting_since = (time.time(), time.perf_counter(), time.thread_time())
    _write(f"step {time.time():.6f} {time.perf_counter():.9f} {time.thread_time():.9f}\n")
    if _STOP_AFTER and _steps >= _STOP_AFTER:
        os._exit(0)


def body() -> None:
    """The loop has its batch: what passed since the step before is its whole wait for input, planted or not."""
    global _waiting_since
    if _waiting_since is not None:
        wall, clock, cpu = _waiting_since
        _waiting_since = None
        _write(f"wait {wall:.6f} {time.perf_counter() - clock:.9f} {time.thread_time() - cpu:.9f}\n")


def turn(every: int) -> bool:
    """Whether this call is one of each `every`."""
    global _turns
    _turns += 1
    return _turns % every == 0


_ballast: dict = {}


def ballast(megabytes: int) -> object:
    """Return a tensor that makes a checkpoint this much larger."""
    import torch

    if megabytes not in _ballast:
        _ballast[megabytes] = torch.zeros(megabytes * 250_000)
    return _ballast[megabytes]


def _write(line: str) -> None:
    global _file
    if _file is None or _file[0] != os.getpid():
        path = os.path.join(_FOLDER, f"marks-{RANK}-{os.getpid()}.txt")
        _file = (os.getpid(), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
        atexit.register(os.close, _file[1])
    os.write(_file[1], line.encode())
