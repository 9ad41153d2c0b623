"""Tasks run one after another in one thread, unless one hangs."""

import threading
import time

import pytest

from left_behind import LeftBehind
from tachoscope_node.collectors.workers import Workers

pytestmark = [pytest.mark.alone, pytest.mark.waits]


def test_tasks_run_in_their_order_in_one_thread() -> None:
    workers, ran = Workers(), []
    tasks = [lambda number=number: ran.append((number, threading.current_thread())) for number in range(23)]

    assert workers.run(tasks, 60) == set()
    assert workers.run(tasks, 60) == set()

    assert [number for number, _ in ran] == [*range(23), *range(23)]
    assert len({thread for _, thread in ran}) == 1
    workers.close()


def test_what_was_not_begun_by_the_deadline_is_given_back_and_never_runs() -> None:
    release, workers, ran = threading.Event(), Workers(), []

    def hang() -> None:
        release.wait()

    hanging = [lambda: hang() for _ in range(23)]
    last = lambda: ran.append(1)  # noqa: E731

    left = workers.run([*hanging, last], 4.0)
    release.set()
    time.sleep(0.05)

    assert last in left
    assert 1 < 24 - len(left) <= 9  # each has an eighth of the deadline; on a full machine it is noticed late, and fewer are begun
    assert ran == []
    workers.close()


def test_close_ends_the_idle_thread() -> None:
    left, workers = LeftBehind(), Workers()
    workers.run([lambda: None], 60)
    assert len(left.threads()) == 1

    workers.close()

    left.assert_nothing()
