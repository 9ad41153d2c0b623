"""Stacks as code and lines, and the line of the user's own that they name."""

from __future__ import annotations

import json
import sys
import threading
import time
from types import CodeType, SimpleNamespace

import pytest

from tachoscope.sampling.stacks import chain_of, lines_of, outside_models, user_line
from tachoscope.timing.procfs import thread_waits_for


def code_in(file: str, name: str = "get_batch") -> CodeType:
    """Return the code of a function of that name in a file of that name."""
    names: dict[str, object] = {}
    exec(compile(f"def {name}(): pass", file, "exec"), names)
    return names[name].__code__  # type: ignore[attr-defined,no-any-return]


LIBRARY = (json.loads.__code__, 12)


def test_the_innermost_line_outside_of_libraries_is_named() -> None:
    chain = [LIBRARY, (code_in("/home/me/data.py"), 7), (code_in("/home/me/train.py", "main"), 99)]

    assert user_line(chain) == "data.py:7 get_batch"
    assert user_line([LIBRARY]) == ""


def test_cells_of_a_notebook_are_the_users_and_have_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, older = "/tmp/ipykernel_71/2873.py", "<ipython-input-3-ab>"  # where ipykernel says that cells are
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={cell: 5}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]

    assert user_line([LIBRARY, (code_in(cell), 2)]) == "cell [5]:2 get_batch"
    assert user_line([LIBRARY, (code_in(older), 2)]) == "<ipython-input-3-ab>:2 get_batch"


def test_what_a_model_does_is_not_outside_of_it() -> None:
    module = (code_in("/lib/torch/nn/modules/module.py", "_call_impl"), 1)
    inner, loop = (code_in("/home/me/model.py", "forward"), 3), (code_in("/home/me/train.py", "validate"), 8)

    assert outside_models([inner, module, inner, module, loop]) == [loop]
    assert outside_models([inner, loop]) == [inner, loop]


def test_instructions_become_the_lines_that_a_frame_tells_itself() -> None:
    frame = sys._getframe()
    places = [(frame.f_code, frame.f_lasti)]
    lines = chain_of(frame)[:1]

    assert lines[0][1] - lines_of(places)[0][1] == 1  # this frame went on to the next line before its chain was taken


def test_a_thread_that_merely_waits_for_the_interpreter_runs_and_one_at_a_lock_does_not() -> None:
    lock, stop, ready = threading.Lock(), threading.Event(), threading.Barrier(3)
    threads: dict[str, int] = {}

    def blocked() -> None:
        threads["blocked"] = threading.get_native_id()
        ready.wait()
        with lock:
            pass

    def busy() -> None:
        threads["busy"] = threading.get_native_id()
        ready.wait()
        while not stop.is_set():
            sum(range(1000))

    with lock:
        started = [threading.Thread(target=work, daemon=True) for work in (blocked, busy)]
        for thread in started:
            thread.start()
        ready.wait()
        kinds = {name: {kind_of(number) for _ in range(50)} for name, number in threads.items()}
    stop.set()
    for thread in started:
        thread.join()

    if kinds["blocked"] == {"unknown"}:
        pytest.skip("this kernel does not say what threads wait for")
    assert kinds["blocked"] <= {"lock", "cpu"}  # cpu: on its way to the lock
    assert "lock" in kinds["blocked"]
    assert kinds["busy"] == {"cpu"}


def kind_of(thread_id: int) -> str:
    time.sleep(0.001)
    return thread_waits_for(thread_id)
