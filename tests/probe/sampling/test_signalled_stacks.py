"""Stacks by the CPU clock of the main thread: they are where it runs, and nothing of the job is disturbed."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import ctypes, os, signal, sys, threading, time
from collections import Counter
from types import SimpleNamespace
from tachoscope.sampling.signalled_stacks import SignalledStacks
from tachoscope.sampling.stacks import lines_of

watched = SimpleNamespace(timeline=SimpleNamespace(phase=3), without_gradients=False)
stacks = SignalledStacks(watched, 0.005)
seen = Counter()

def drain():
    for taken in stacks.drain():
        assert (taken.phase, taken.without_gradients) == (3, False)
        seen.update({code.co_name for code, line in lines_of(taken.places)})

def burn(cpu_seconds):
    end = time.thread_time() + cpu_seconds
    while time.thread_time() < end:
        sum(range(100))
"""


def run(script: str) -> list[str]:
    """Run a script in a process whose main thread is its own, and return what it printed."""
    source = BEGIN + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "unsupported":
        pytest.skip("this kernel has no timer of a thread's CPU clock")
    return done.stdout.split()


@pytest.mark.alone
def test_pure_python_is_seen_as_often_as_it_runs_however_often_native_code_gives_the_lock_away() -> None:
    """Looks are seldom, as in a job: each sets the timer again, and always while native code runs, which shifts the samples.

    On two cores with four other busy processes pure Python has 0.16 too much, by whatever the kernel's ticks do there.
    """
    share, true_share = map(
        float,
        run(
            """
            import zlib
            text = b"x" * 300_000
            true = Counter()

            def tokenize():
                words = {}
                for number in range(8000):
                    words[str(number % 977)] = words.get(str(number % 977), 0) + 1

            def compress():
                zlib.compress(text)  # without the interpreter's lock

            if not stacks.start():
                print("unsupported"); sys.exit()
            stop = threading.Event()
            threading.Thread(target=lambda: [drain() for _ in iter(lambda: stop.wait(0.1), True)], daemon=True).start()
            while seen.total() < 2 * 150:
                for work in (tokenize, compress):
                    begin = time.thread_time()
                    work()
                    true[work.__name__] += time.thread_time() - begin
            stop.set()
            print(seen["tokenize"] / (seen["tokenize"] + seen["compress"]), true["tokenize"] / true.total())
            """
        ),
    )

    assert share == pytest.approx(true_share, abs=0.15)


def test_a_thread_that_waits_in_the_kernel_is_not_interrupted() -> None:
    assert run(
        """
        libc = ctypes.CDLL(None)
        if not stacks.start():
            print("unsupported"); sys.exit()
        failed = waits = 0
        while waits < 30 or seen["burn"] < 10:  # a busy virtual machine loses ticks, and with them signals
            burn(0.01)
            failed += libc.usleep(20_000) != 0  # fails with EINTR where a signal comes, and is not restarted
            waits += 1
            drain()
        print(failed)
        """
    ) == ["0"]


def test_a_signal_that_the_job_uses_is_left_to_it_before_and_after() -> None:
    assert run(
        """
        got = []
        own = lambda number, frame: got.append(number)
        signal.signal(signal.SIGURG, own)
        before = stacks.start()
        signal.signal(signal.SIGURG, signal.SIG_DFL)
        if not stacks.start():
            print("unsupported"); sys.exit()
        signal.signal(signal.SIGURG, own)
        drain()
        got.clear()
        burn(0.1)
        print(before, stacks.on, got, signal.getsignal(signal.SIGURG) is own)
        """
    ) == ["False", "False", "[]", "True"]


def test_only_the_main_thread_can_be_sampled_and_a_forked_child_on_its_own() -> None:
    assert run(
        """
        def other():
            print(SignalledStacks(watched, 0.005).start(), flush=True)
        thread = threading.Thread(target=other)
        thread.start(); thread.join()
        if not stacks.start():
            print("unsupported"); sys.exit()
        child = os.fork()
        if not child:
            burn(0.1)
            idle = not stacks._taken
            mine = SignalledStacks(watched, 0.005)
            print(idle, mine.start(), flush=True)
            while not mine.drain():
                burn(0.01)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    ) == ["False", "True", "True", "0"]


@pytest.mark.bar  # of torch only
def test_torch_compile_does_not_compile_the_handler() -> None:
    assert run(
        """
        import torch
        import torch._dynamo

        from torch._dynamo import convert_frame

        def outside(x):
            torch._dynamo.graph_break()
            for _ in range(2000):
                str(x)[:0]
            return x + 1

        @torch.compile(backend="eager")
        def compiled(x):
            return outside(x * 2).sum()

        if not stacks.start():
            print("unsupported"); sys.exit()
        drain()
        compiled(torch.ones(3))
        seen_by_compiler = convert_frame.FRAME_COUNTER
        begin = time.thread_time()
        while time.thread_time() - begin < 1.0 or seen["outside"] < 4:
            compiled(torch.ones(3))
            drain()
        print(convert_frame.FRAME_COUNTER - seen_by_compiler, seen["on_signal"])
        """
    ) == ["0", "0"]
