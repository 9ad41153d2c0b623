"""A task says how it ended, or that it has not."""

from __future__ import annotations

import threading

from tachoscope_node.gpu.watchdog_task import Task


def test_a_task_that_has_ended_holds_its_answer_or_its_error() -> None:
    answers, fails = Task(lambda: 23), Task(lambda: 1 // 0)
    for task in (answers, fails):
        task.begin()
        task()

    assert (answers.running, answers.answer, answers.error) == (False, 23, None)
    assert (fails.running, fails.answer, type(fails.error)) == (False, None, ZeroDivisionError)


def test_a_task_that_hangs_runs_until_it_ends_and_what_it_said_before_is_forgotten() -> None:
    release = threading.Event()
    release.set()
    task = Task(release.wait)
    task.begin()
    task()
    release.clear()
    task.begin()
    thread = threading.Thread(target=task)
    thread.start()

    assert (task.running, task.answer) == (True, None)
    release.set()
    thread.join()
    assert (task.running, task.answer) == (False, True)
