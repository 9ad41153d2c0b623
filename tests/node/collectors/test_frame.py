"""One collector's trouble is its own: the others go on, it is named, and its old values are not shown as current."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trees import plant, points

from left_behind import LeftBehind
from tachoscope_core.metrics.agent import COLLECTOR_DURATION, COLLECTOR_FAILING, COLLECTOR_STATUS, COLLECTOR_SUCCESS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError, PartialError
from tachoscope_node.collectors.frame import NOT_SUPPORTED_SECONDS, STATUSES, Frame
from tachoscope_node.collectors.memory import MemoryCollector
from tachoscope_service.metrics.family import Family

pytestmark = [pytest.mark.alone, pytest.mark.waits]

_DEADLINE = 1.0


def gauge(name: str) -> Metric:
    return Metric(f"tachoscope_test_{name}", "For tests.")


class Fake:
    """Counts its runs; `act` makes it raise or wait."""

    def __init__(self, name: str, act: Callable[[], None] = lambda: None, interval_seconds: float = 5.0) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self.metrics = (gauge(name),)
        self.act = act
        self.runs = 0

    def collect(self) -> list[Family]:
        self.runs += 1
        self.act()
        return [Family(self.metrics[0], [((), self.runs)])]

    def shown(self, frame: Frame) -> float | None:
        return points(frame.families(), self.metrics[0]).get(())


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def status(frame: Frame, name: str) -> str | None:
    """Return the one status that is 1, and None where none is."""
    found = points(frame.families(), COLLECTOR_STATUS)
    assert {each for collector, each in found if collector == name} == set(STATUSES)
    current = [each for each in STATUSES if found[name, each] == 1]
    assert len(current) <= 1
    return current[0] if current else None


def success(frame: Frame, name: str) -> float | None:
    return points(frame.families(), COLLECTOR_SUCCESS).get((name,))


def failing(frame: Frame, name: str) -> float | None:
    return points(frame.families(), COLLECTOR_FAILING).get((name,))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    assert true()


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def threads() -> Iterator[Callable[[], int]]:
    """Count the threads that collect for this test, of which none may be left."""
    left = LeftBehind()
    yield lambda: len(left.threads("tachoscope-collect"))
    until(lambda: not left.threads("tachoscope-collect"))


def test_what_collectors_gave_is_shown_with_how_they_are_and_how_long_they_took(log: list[str]) -> None:
    slow, quick = Fake("slow", lambda: time.sleep(1.0)), Fake("quick")
    frame = Frame([slow, quick], log.append, deadline_seconds=60.0)

    frame.tick(100.0)

    assert (slow.shown(frame), quick.shown(frame)) == (1, 1)
    assert status(frame, "slow") == status(frame, "quick") == "ok"
    assert success(frame, "slow") == 1
    durations = points(frame.families(), COLLECTOR_DURATION)
    assert durations["slow",] >= 1.0 > durations["quick",]
    assert log == []
    frame.close()


@pytest.mark.parametrize(
    ("error", "expected", "succeeded"),
    [
        (NoDataError("no rank runs"), "no_data", 1),
        (NotSupportedError("no driver"), "not_supported", 1),
        (ValueError("spoilt"), "failed", 0),
        (OSError(5, "Input/output error"), "failed", 0),
        (SystemExit(1), "failed", 0),
    ],
)
def test_the_three_ways_of_no_values_are_told_apart_and_drop_the_old_ones(
    error: BaseException, expected: str, succeeded: int, log: list[str]
) -> None:
    fake, other = Fake("fake"), Fake("other")
    frame = Frame([fake, other], log.append)
    frame.tick(0.0)
    assert fake.shown(frame) == 1

    fake.act = raising(error)
    frame.tick(5.0)

    assert fake.shown(frame) is None
    assert other.shown(frame) == 2
    assert status(frame, "fake") == expected
    assert success(frame, "fake") == succeeded
    assert log == [f"collector fake: {expected}: " + (f"{type(error).__name__}: {error}" if succeeded == 0 else str(error))]
    frame.close()


def test_before_its_first_run_a_collector_has_all_status_series_and_no_claim(log: list[str]) -> None:
    frame = Frame([Fake("fake")], log.append)

    assert set(points(frame.families(), COLLECTOR_STATUS).values()) == {0.0}
    assert success(frame, "fake") is None
    frame.close()


def test_an_outcome_is_logged_when_it_changes_and_not_at_each_run(log: list[str]) -> None:
    fake = Fake("fake")
    frame = Frame([fake], log.append)
    for now, act in enumerate([lambda: None, raising(OSError("a")), raising(OSError("b")), lambda: None, lambda: None]):
        fake.act = act
        frame.tick(now * 5.0)

    assert log == ["collector fake: failed: OSError: a", "collector fake: ok"]
    frame.close()


def test_each_runs_at_its_own_interval_and_keeps_its_values_between(log: list[str]) -> None:
    often, seldom = Fake("often", interval_seconds=1.0), Fake("seldom", interval_seconds=5.0)
    frame = Frame([often, seldom], log.append)
    for now in range(23):
        frame.tick(float(now))
        assert seldom.shown(frame) == now // 5 + 1

    assert (often.runs, seldom.runs) == (23, 5)
    frame.close()


def test_ticks_that_come_late_or_early_by_a_little_do_not_lose_runs(log: list[str]) -> None:
    fake = Fake("fake", interval_seconds=5.0)
    frame = Frame([fake], log.append)
    for second in range(1000):
        frame.tick(second + (0.02 if second % 2 else 0.0))

    assert 199 <= fake.runs <= 201
    frame.close()


def test_what_is_not_supported_is_tried_again_every_ten_minutes(log: list[str]) -> None:
    fake = Fake("fake", raising(NotSupportedError("no driver")))
    frame = Frame([fake], log.append)
    for now in range(0, int(3 * NOT_SUPPORTED_SECONDS), 5):
        frame.tick(float(now))

    assert fake.runs == 3
    assert len(log) == 1
    frame.close()


def test_one_that_hangs_is_failed_while_the_others_are_collected_in_the_same_tick(log: list[str]) -> None:
    release = threading.Event()
    hung = Fake("hung", lambda: release.wait() and None)
    others = [Fake("before"), hung, Fake("after"), Fake("last")]
    frame = Frame(others, log.append, deadline_seconds=_DEADLINE)

    start = time.monotonic()
    frame.tick(0.0)

    assert time.monotonic() - start < 20.0  # it would hang for ever
    assert [each.shown(frame) for each in others] == [1, None, 1, 1]
    assert status(frame, "hung") == "failed"
    assert success(frame, "hung") == 0
    assert ("hung",) not in points(frame.families(), COLLECTOR_DURATION)
    assert "no answer within 1 s" in log[0]
    assert len(log) == 1
    release.set()
    frame.close()


def test_one_that_hangs_is_not_started_again_and_delays_no_later_tick(log: list[str], threads: Callable[[], int]) -> None:
    release = threading.Event()
    hung, other = Fake("hung", lambda: release.wait() and None), Fake("other")
    frame = Frame([hung, other], log.append, deadline_seconds=_DEADLINE)
    frame.tick(0.0)

    start = time.monotonic()
    for run in range(1, 21):
        frame.tick(run * 5.0)

    assert time.monotonic() - start < 20.0  # it would hang for ever
    assert hung.runs == 1
    assert other.shown(frame) == 21
    assert status(frame, "hung") == "failed"
    assert threads() == 2
    release.set()
    frame.close()


def test_what_a_hanging_one_says_late_is_dropped_and_its_next_run_counts(log: list[str], threads: Callable[[], int]) -> None:
    release = threading.Event()
    hung = Fake("hung", lambda: release.wait() and None)
    frame = Frame([hung], log.append, deadline_seconds=_DEADLINE)
    frame.tick(0.0)
    release.set()
    until(lambda: threads() == 0)

    frame.tick(1.0)
    assert hung.shown(frame) is None
    frame.tick(5.0)

    assert hung.shown(frame) == 2
    assert status(frame, "hung") == "ok"
    assert log[1:] == ["collector hung: ok"]
    frame.close()


def test_several_that_hang_at_once_each_hold_a_thread_and_the_rest_go_on(log: list[str], threads: Callable[[], int]) -> None:
    release = threading.Event()
    hung = [Fake(f"hung{number}", lambda: release.wait() and None) for number in range(3)]
    others = [Fake(f"other{number}") for number in range(3)]
    frame = Frame([*hung, *others], log.append, deadline_seconds=_DEADLINE)

    for run in range(3):
        frame.tick(run * 5.0)

    assert [each.shown(frame) for each in others] == [3, 3, 3]
    assert [status(frame, each.name) for each in hung] == ["failed"] * 3
    assert threads() == 4
    release.set()
    frame.close()


def test_one_that_is_slow_but_answers_in_time_is_ok_though_others_passed_it(log: list[str]) -> None:
    slow, other = Fake("slow", lambda: time.sleep(_DEADLINE / 2)), Fake("other")
    frame = Frame([slow, other], log.append, deadline_seconds=_DEADLINE)

    frame.tick(0.0)

    assert (slow.shown(frame), other.shown(frame)) == (1, 1)
    assert log == []
    frame.close()


def test_how_long_one_has_failed_is_told_from_the_first_failure_and_only_until_a_run_does_not_fail(log: list[str]) -> None:
    fake, other = Fake("fake"), Fake("other", interval_seconds=1.0)
    frame = Frame([fake, other], log.append)
    outcomes: dict[int, Callable[[], None]] = {
        0: lambda: None,
        5: raising(OSError("a")),
        10: raising(ValueError("b")),
        15: raising(PartialError("c", [])),
        20: raising(NoDataError("no rank runs")),
        25: raising(OSError("a")),
        30: lambda: None,
        35: raising(OSError("a")),
        40: raising(NotSupportedError("no driver")),
    }
    since: float | None = None
    for now in range(45):
        fake.act = outcomes.get(now, fake.act)
        frame.tick(float(now))
        is_failed = status(frame, "fake") == "failed"
        since = (now if since is None else since) if is_failed else None

        assert failing(frame, "fake") == (None if since is None else now - since)
        assert failing(frame, "other") is None
    assert fake.runs == len(outcomes)
    frame.close()


def test_how_long_one_hangs_grows_though_nothing_is_due_and_it_is_not_started_again(
    log: list[str], threads: Callable[[], int]
) -> None:
    release = threading.Event()
    hung = Fake("hung", lambda: release.wait() and None)
    frame = Frame([hung], log.append, deadline_seconds=_DEADLINE)
    seen = []
    for now in range(100, 112):
        frame.tick(float(now))
        seen.append(failing(frame, "hung"))
    assert seen == [float(second) for second in range(12)]
    assert hung.runs == 1

    release.set()
    until(lambda: threads() == 0)
    frame.tick(112.0)
    assert failing(frame, "hung") is None, "it answers, and is due"
    frame.close()


def test_a_real_collector_that_blocks_on_a_fifo_comes_back_when_someone_writes(
    tmp_path: Path, log: list[str], threads: Callable[[], int]
) -> None:
    proc = plant(tmp_path, {"vmstat": "pgmajfault 23\n"})
    os.mkfifo(tmp_path / "meminfo")
    memory, other = MemoryCollector(proc), Fake("other")
    frame = Frame([memory, other], log.append, deadline_seconds=_DEADLINE)

    frame.tick(0.0)
    assert (status(frame, "memory"), status(frame, "other")) == ("failed", "ok")
    (tmp_path / "meminfo").open("w").close()
    until(lambda: threads() <= 1)
    (tmp_path / "meminfo").unlink()
    plant(tmp_path, {"meminfo": "MemTotal: 23 kB\n"})
    frame.tick(5.0)

    assert status(frame, "memory") == "ok"
    assert points(frame.families(), memory.metrics[0]) == {("total",): 23 * 1024}
    frame.close()


def test_twenty_thousand_ticks_leave_one_thread(log: list[str], threads: Callable[[], int]) -> None:
    fakes = [Fake("a"), Fake("b", raising(OSError("always"))), Fake("c", raising(NoDataError("never")))]
    frame = Frame(fakes, log.append)
    for now in range(20_000):
        frame.tick(float(now))

    assert fakes[0].runs == 4_000
    assert threads() == 1
    assert len(log) == 2
    frame.close()
    assert threads() == 0


def test_hanging_and_coming_back_again_and_again_leaves_one_thread(log: list[str], threads: Callable[[], int]) -> None:
    release = threading.Event()
    flapping, other = Fake("flapping", lambda: release.wait() and None, 1.0), Fake("other", interval_seconds=1.0)
    frame = Frame([flapping, other], log.append, deadline_seconds=_DEADLINE)
    for now in range(3):
        release.clear()
        frame.tick(float(now))
        release.set()
        until(lambda: threads() <= 1)

    assert flapping.runs == other.runs == 3
    frame.close()


def test_a_process_ends_though_a_collector_hangs(log: list[str]) -> None:
    release = threading.Event()
    frame = Frame([Fake("hung", lambda: release.wait() and None)], log.append, deadline_seconds=0.05)
    frame.tick(0.0)

    start = time.monotonic()
    frame.close()

    assert time.monotonic() - start < 20.0  # it would hang for ever
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "tachoscope-collect")
    release.set()


def test_a_metric_that_was_not_declared_is_a_failure_with_its_name(log: list[str]) -> None:
    fake = Fake("fake")
    frame = Frame([fake], log.append)
    fake.metrics = (gauge("stranger"),)

    frame.tick(0.0)

    assert status(frame, "fake") == "failed"
    assert "does not declare: tachoscope_test_stranger" in log[0]
    frame.close()


def test_two_of_a_name_or_of_a_metric_are_refused(log: list[str]) -> None:
    with pytest.raises(ValueError, match="two collectors are named 'fake'"):
        Frame([Fake("fake"), Fake("fake")], log.append)
    thief = Fake("thief")
    thief.metrics = (gauge("fake"),)
    with pytest.raises(ValueError, match="tachoscope_test_fake is declared by the collectors 'fake' and 'thief'"):
        Frame([Fake("fake"), thief], log.append)
