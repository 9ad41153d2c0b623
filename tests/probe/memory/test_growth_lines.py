"""Lines that allocate what stays, in processes of their own: tracing is on for a whole process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

DRIVER = """
import time, tracemalloc
from tachoscope.memory import growth_lines as module
from tachoscope.memory.growth_lines import GrowthLines

class Clock:
    now = 0.0
clock, held, steps = Clock(), [100 << 20], [0]
lines = GrowthLines(lambda: {half_full}, lambda: steps[0], lambda: held[0], lambda: clock.now)
kept = []
found = {}
for step in range(60):
{body}
    clock.now += 0.5
    steps[0] += 2
    lines.poll()
    found = found or lines.taken()[0]
before = tracemalloc.get_traced_memory()[0]
more = bytearray(1 << 20)
print(found and max(found, key=found.get), tracemalloc.get_traced_memory()[0] - before > 1 << 19)
"""


def run(body: str, *, half_full: bool = True) -> tuple[str, str]:
    """Return the line that was found and its text."""
    script = DRIVER.replace("{body}", textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")).replace(
        "{half_full}", str(half_full)
    )
    done = subprocess.run([sys.executable, "-c", "import sys; exec(compile(sys.stdin.read(), '/job/train.py', 'exec'))"],
                          input=script, capture_output=True, text=True, check=True, timeout=120)  # fmt: skip
    place, tracing = done.stdout.rsplit(maxsplit=1)
    assert tracing == "False", "it ends by itself"
    if not place.startswith("train.py:"):
        return place, ""
    return place, script.splitlines()[int(place.split(":")[1]) - 1].strip()


@pytest.mark.parametrize(
    "leak",
    [
        "kept.append(bytearray(5 << 20))",
        "kept.append([float(number) for number in range(20_000)])",
        "kept.append(__import__('numpy').ones(600_000))",
        "kept.append(__import__('mmap').mmap(-1, 5 << 20))",
    ],
    ids=["bytes", "objects", "array", "shared block"],
)
@pytest.mark.bar(but=("objects", "array", "shared block"))
def test_the_line_that_keeps_what_it_makes_is_named_beside_one_that_frees_it(leak: str) -> None:
    _, text = run(f"""
        held[0] += 5 << 20
        freed = bytearray(20 << 20)
        {leak}
    """)

    assert text == leak


def test_memory_that_does_not_grow_is_never_followed() -> None:
    place, _ = run("""
        held[0] = (100 << 20) + (50 << 20) * (step % 2)
        kept = [bytearray(5 << 20)]
    """)

    assert place == "{}"


def test_memory_that_grows_where_most_is_free_is_not_followed() -> None:
    place, _ = run(
        """
        held[0] += 5 << 20
        kept.append(bytearray(5 << 20))
        assert not tracemalloc.is_tracing()
        """,
        half_full=False,
    )

    assert place == "{}"


def test_a_job_that_traces_its_allocations_itself_is_left_alone() -> None:
    body = """
        held[0] += 5 << 20
        if step == 0: tracemalloc.start(1)
        if step == 59: tracemalloc.stop(); stopped = True
        kept.append(bytearray(5 << 20))
        assert step == 59 or tracemalloc.is_tracing()
    """
    place, _ = run(body)

    assert place == "{}"


def test_a_look_at_what_is_held_that_fails_ends_the_trace_and_is_not_tried_again() -> None:
    script = DRIVER.replace("{half_full}", "True").replace(
        "{body}", "    held[0] += 5 << 20\n    kept.append(bytearray(5 << 20))"
    )  # fmt: skip
    script = script.replace("    lines.poll()", "    try: lines.poll()\n    except MemoryError: failed.append(step)")
    script = script.replace("found = {}", "found, failed = {}, []\ndef fail(**_): raise MemoryError\nmodule.held_blocks = fail")
    script = script.replace("print(found and max(found, key=found.get),", "print(len(failed),")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)

    assert done.stdout == "1 False\n"
