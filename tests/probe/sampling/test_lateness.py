"""The sampler is late when another thread holds the interpreter, and only then."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time

import pytest

from tachoscope.sampling import sampler
from tachoscope.sampling.sampler import TICK_SECONDS, Lateness

HELD_SECONDS = 0.4


def lateness_while(work: object, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the lateness of a few sleeps, while another thread does `work(stop)`."""
    stop = threading.Event()
    other = threading.Thread(target=work, args=(stop,))  # type: ignore[arg-type]
    lateness, found = Lateness(), []
    other.start()
    for _ in range(8):
        lateness.before_wait(TICK_SECONDS)
        time.sleep(TICK_SECONDS)
        found.append(lateness.after_wait())
    stop.set()
    other.join()
    return found


def holds(stop: threading.Event) -> None:
    """Sleep in native code that does not give the interpreter's lock back."""
    library = ctypes.PyDLL(None)
    while not stop.is_set():
        library.usleep(round(HELD_SECONDS * 1e6))
        stop.wait(0.05)


def computes(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


@pytest.mark.alone
def test_a_thread_that_keeps_the_interpreter_makes_the_sampler_late_and_one_that_computes_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not sampler.procfs.RunDelay().measured:
        pytest.skip("this kernel does not say how long a thread waited for a core")

    # Each of the looks may be delayed by whatever else the machine does, but not most of them, as by a held lock.
    assert statistics.median(lateness_while(holds, monkeypatch)) > 0.1
    assert statistics.median(lateness_while(computes, monkeypatch)) < 0.1
