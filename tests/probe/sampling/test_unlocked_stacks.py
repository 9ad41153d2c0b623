"""Stacks read by the native module: they are where the thread is, whatever the thread does, and nothing harms the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from tachoscope.sampling import unlocked_stacks
from tachoscope.sampling.unlocked_stacks import UnlockedStacks
from tachoscope_core.native import native

MODULE = native(unlocked_stacks.MODULE)
needs_module = pytest.mark.skipif(MODULE.module is None or sys.version_info >= (3, 14), reason=MODULE.reason or "frames not known")

BEGIN = """
import gc, os, random, sys, threading, time
from collections import Counter
from tachoscope.sampling.loader_workers import NoPhases
from tachoscope.sampling.stacks import lines_of
from tachoscope.sampling.unlocked_stacks import UnlockedStacks

EVERY_SECONDS = 0.002
watched = NoPhases()
stacks = UnlockedStacks(watched, EVERY_SECONDS)
"""


def run(script: str, *arguments: str) -> list[str]:
    """Run a script in a process of its own, and return what it printed."""
    source = BEGIN + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", source, *arguments], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_module
def test_in_a_tight_loop_of_python_that_holds_the_lock_the_line_that_takes_the_time_is_named() -> None:
    """The end of the loop, where a signal's handler would be called, takes next to nothing of it."""
    share = float(
        run(
            """
            text = "def loop():\\n x = 1\\n for _ in range(300):\\n  x = (" + "-x+" * 400 + "1) & 255\\n  y = x\\n return y\\n"
            names = {}
            exec(compile(text, "tight.py", "exec"), names)
            assert stacks.start(), stacks.reason
            lines = Counter()
            while lines.total() < 100:
                names["loop"]()
                for taken in stacks.drain():
                    code, line = lines_of(taken.places)[0]
                    lines[line] += code.co_name == "loop"
            print(lines[4] / lines.total())
            """
        )[0]
    )

    assert share > 0.95


@needs_module
def test_the_phase_of_a_stack_is_the_one_at_its_moment() -> None:
    assert run(
        """
        def burn():
            for _ in range(10_000):  # longer than a stack may take to be read
                pass

        def zero(): burn()
        def one(): burn()
        def two(): burn()

        functions = [zero, one, two]
        assert stacks.start(), stacks.reason
        seen, wrong = Counter(), 0
        while len(seen) < 3 or seen.total() < 200:
            for _ in range(300):
                for watched.phase, function in enumerate(functions):
                    watched.without_gradients = watched.phase == 1
                    function()
            for taken in stacks.drain():
                names = [code.co_name for code, _ in taken.places]
                of = [phase for phase, function in enumerate(functions) if function.__name__ in names]
                seen.update(of)
                wrong += of not in ([], [taken.phase]) or (of == [1]) > taken.without_gradients
        print(wrong)
        """
    ) == ["0"]


@needs_module
def test_a_code_object_that_follows_another_in_the_same_memory_never_has_its_name_or_lines() -> None:
    """Each function that is made and forgotten has lines of its own: `f7` of `file7` has lines 8 to 10."""
    seen, wrong = map(
        int,
        run(
            """
            def right(code, line):
                number = int(code.co_filename.removeprefix("file"))
                return code.co_name == "<module>" or (code.co_name == f"f{number}" and number < line <= number + 3)

            assert stacks.start(), stacks.reason
            seen, kept, number = Counter(), [], 0
            text = "def f{0}(n):\\n for _ in range(n):\\n  n += 1"
            end = time.thread_time() + 0.5
            while time.thread_time() < end or seen[True] < 50:
                number = (number + random.randrange(1, 40)) % 997
                names = {}
                exec(compile("\\n" * number + text.format(number), f"file{number}", "exec"), names)
                kept += [names.pop(f"f{number}")] if len(kept) < 10 else []  # the others are freed at once
                for function in (names.pop(f"f{number}", kept[-1]), random.choice(kept)):
                    function(random.choice([10, 3000]))
                for taken in stacks.drain():
                    seen.update(right(code, line) for code, line in lines_of(taken.places) if code.co_filename.startswith("file"))
            print(seen[True], seen[False])
            """
        ),
    )

    assert seen >= 50
    assert wrong == 0


@needs_module
def test_a_thread_that_ends_while_it_is_sampled_is_noticed_and_another_can_follow() -> None:
    assert run(
        """
        def work():
            mine = UnlockedStacks(NoPhases(), EVERY_SECONDS)
            assert mine.start(), mine.reason
            taken.append(mine)
            end = time.thread_time() + 0.05
            while time.thread_time() < end:
                sum(range(100))

        for _ in range(8):
            taken = []
            thread = threading.Thread(target=work)
            thread.start(); thread.join()
            hold = [bytearray(1 << 16) for _ in range(100)]  # what is freed is used again
            while taken[0].on:  # the kernel forgets a thread a moment after it was joined
                taken[0].drain()
        print(stacks.start(), stacks.on)
        """
    ) == ["True", "True"]


@needs_module
def test_a_forked_process_samples_on_its_own_and_the_first_one_goes_on() -> None:
    assert run(
        """
        def burn(of, wanted):
            count = 0
            while count < wanted:
                sum(range(1000))
                count += len(of.drain())
            return count >= wanted

        assert stacks.start(), stacks.reason
        for _ in range(5):
            child = os.fork()
            if not child:
                before = stacks._native.counts()
                stacks.stop()  # the parent's: without effect here
                mine = UnlockedStacks(NoPhases(), EVERY_SECONDS)
                ok = mine.start() and burn(mine, 5) and before == {}
                os._exit(0 if ok else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(burn(stacks, 20))
        """
    ) == ["True"]


STRESS = """
sys.setrecursionlimit(20_000)

def deep(left):
    return deep(left - 1) + 1 if left else 0

def nested(left):
    if left:
        yield from nested(left - 1)
    yield left

class Cycle:
    def __init__(self):
        self.me, self.text = self, "x" * 1000
    def __del__(self):
        deep(5)

def churn():
    names = {}
    exec(compile(f"def made(n):\\n return [str(i) for i in range(n)]", "made", "exec"), names)
    return names["made"](50)

def raise_through(left):
    try:
        raise_through(left - 1) if left else {}["x"]
    except KeyError:
        raise

def other_threads():
    while not done.is_set():
        deep(200); sorted(range(1000), key=lambda x: -x)

def restart():
    while not done.is_set():
        for taken in stacks.drain():
            lines_of(taken.places); seen[0] += 1
        done.wait(0.01)

def caught():
    try:
        raise_through(50)
    except KeyError:
        pass

seen = [0]
done = threading.Event()
threading.excepthook = lambda failure: (sys.excepthook(*failure[:3]), os._exit(1))
assert stacks.start(), stacks.reason
helpers = [threading.Thread(target=target, daemon=True) for target in (other_threads, restart, restart)]
for helper in helpers: helper.start()
work = [lambda: deep(5000), lambda: list(nested(100)), lambda: [Cycle() for _ in range(100)], churn, caught, gc.collect]
end = time.thread_time() + float(sys.argv[1])
rounds = 0
while time.thread_time() < end or seen[0] < 20:
    random.choice(work)()
    rounds += 1
    if rounds % 500 == 0:
        stacks.stop()  # while others drain
        stacks = UnlockedStacks(watched, EVERY_SECONDS)
        assert stacks.start(), stacks.reason
done.set()
for helper in helpers: helper.join()
print("lived")
"""


@needs_module
def test_recursion_generators_exceptions_and_garbage_collection_do_no_harm(request: pytest.FixtureRequest) -> None:
    seconds = 20 if request.config.getoption("--bar-runs") >= 10 else 0.7

    assert run(STRESS, str(seconds)) == ["lived"]


def test_where_the_frames_read_are_not_those_that_python_tells_nothing_is_read() -> None:
    frames = [((0, "other", "file.py", 1, b""), 0)]
    for sample in ([], frames, frames * 3):
        assert "not as expected" in unlocked_stacks._mismatch(SimpleNamespace(sample_self=lambda _, of=sample: of))


def test_switched_off_the_signals_take_the_stacks() -> None:
    assert run(
        """
        from tachoscope.sampling.running_stacks import RunningStacks

        os.environ["TACHOSCOPE_NATIVE"] = "0"
        running = RunningStacks(watched)
        print(running.start(), stacks.start(), stacks.reason.split()[-1])
        """
    )[1:] == ["False", "TACHOSCOPE_NATIVE=0"]


@needs_module
def test_a_phase_that_is_no_slot_cannot_be_read() -> None:
    stacks = UnlockedStacks(SimpleNamespace(timeline=SimpleNamespace(phase=0), without_gradients=False), 0.1)

    assert not stacks.start()
    assert "neither a slot" in stacks.reason
