"""Runs what may never return, for a bounded time: reading what a process does that stands in the kernel may block, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

_T = TypeVar("_T")


class _Answer(Generic[_T]):
    __slots__ = ("error", "value")

    def __init__(self) -> None:
        self.value: _T | None = None
        self.error = ""


def within(seconds: float, tasks: Mapping[str, Callable[[], _T]]) -> tuple[dict[str, _T], dict[str, str]]:
    """Run tasks in threads of their own; return what came in time by name, and of the others the reason.

    A task that does not return keeps its thread, a daemon, and nothing else.
    """
    answers = {name: _Answer[_T]() for name in tasks}
    threads = {name: threading.Thread(target=_run, args=(task, answers[name]), daemon=True) for name, task in tasks.items()}
    deadline = time.monotonic() + seconds
    for name, thread in threads.items():
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            answers[name].error = str(error)
    for thread in threads.values():
        if thread.ident is not None:
            thread.join(max(deadline - time.monotonic(), 0.0))
    found = {name: answer.value for name, answer in answers.items() if answer.value is not None}
    late = {name: answer.error or f"no answer within {seconds:g} s" for name, answer in answers.items() if answer.value is None}
    return found, late


def _run(task: Callable[[], _T], answer: _Answer[_T]) -> None:
    try:
        answer.value = task()
    except Exception as error:  # said in the bundle
        answer.error = str(error) or type(error).__name__
