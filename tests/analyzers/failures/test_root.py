"""Which rank is named as the first that failed: from planted records, whose truth is known."""

from typing import Any

import msgspec
import pytest

from tachoscope_analyzers.failures.report import failures
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records import records
from tachoscope_core.report.failures import Failure
from tachoscope_core.report.report import Source

PEER_GONE = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:36127"
GAVE_UP = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete"
)
BEGAN = 1_700_000_000.0


class Job:
    """The records of a job of some ranks, with times in seconds since its begin."""

    def __init__(self, ranks: int = 2, hosts: tuple[str, ...] = ("a",)) -> None:
        self.ranks, self.hosts = ranks, hosts
        self._lists: dict[str, list[Any]] = {
            name: []
            for name in ("starts", "process_failures", "process_exits", "ends", "hangs", "notices", "out_of_memory", "failures")
        }
        self._steps: list[records.StepDone] = []
        self._seq = 0

    def _envelope(self, at: float, attempt: int, *, rank: int = -1, host: str = "", writer: str = "") -> dict[str, Any]:
        self._seq += 1
        fixed = {"job": "j", "seq": self._seq, "local_rank": rank, "monotonic_ns": int((at + 100.0) * 1e9)}
        return fixed | {
            "attempt": attempt,
            "rank": rank,
            "host": host or self.hosts[0],
            "writer": writer or f"w{self._seq}",
            "time": BEGAN + at,
        }

    def host_of(self, rank: int) -> str:
        return self.hosts[rank * len(self.hosts) // self.ranks]

    def attempt(self, attempt: int = 0, *, steps: int = 3, first: int = 1, at: float = 0.0) -> "Job":
        """Add the begin of an attempt under a launcher, and steps of all ranks, one a second."""
        self._lists["starts"].append(records.JobStarted(**self._envelope(at, attempt, writer=f"l{attempt}"), world_size=0, pid=1))
        for rank in range(self.ranks):
            writer, host = f"r{attempt}-{rank}", self.host_of(rank)
            start = self._envelope(at + 1, attempt, rank=rank, host=host, writer=writer)
            self._lists["starts"].append(
                records.JobStarted(**start, world_size=self.ranks, pid=100 * attempt + rank + 2, device="cpu")
            )
            for step in range(steps):
                done = self._envelope(at + 2 + step, attempt, rank=rank, host=host, writer=writer)
                self._steps.append(records.StepDone(**done, step=first + step, wall_seconds=1.0, phase_seconds={"other": 1.0}))
        return self

    def raised(self, rank: int, at: float, exception: str, message: str = "", attempt: int = 0, **fields: Any) -> "Job":
        fields = {"how": "exception", "location": f"train.py:{10 + rank}"} | fields
        own = self._envelope(at, attempt, host=self.host_of(rank))
        self._lists["process_failures"].append(
            records.ProcessFailed(**own, failed_rank=rank, exception=exception, message=message, **fields)
        )
        return self

    def exited(self, rank: int, at: float, code: int, attempt: int = 0, **fields: Any) -> "Job":
        own = self._envelope(at, attempt, host=self.host_of(rank))
        self._lists["process_exits"].append(records.ProcessExited(**own, exited_rank=rank, exit_code=code, **fields))
        return self

    def ended(self, at: float, attempt: int = 0, status: str = "failed", reason: str = "exit code 1") -> "Job":
        own = self._envelope(at, attempt, writer=f"l{attempt}")
        self._lists["ends"].append(
            records.JobEnded(**own, status=status, reason=reason, exit_code=0 if status == "completed" else 1)
        )
        return self

    def add(self, name: str, kind: type[records.Record], at: float, **fields: Any) -> "Job":
        self._lists[name].append(kind(**self._envelope(at, 0), **fields))
        return self

    def records(self) -> JobRecords:
        return JobRecords("j", Source(path=""), **self._lists, steps=StepTable.of(self._steps))

    def failures(self) -> list[Failure]:
        return failures(self.records())

    def root(self) -> Failure:
        (found,) = self.failures()
        return found


def test_an_own_error_comes_before_errors_about_others_whatever_their_times() -> None:
    root = (
        Job(2).attempt()
        .raised(0, 5.0, "RuntimeError", GAVE_UP).raised(1, 4.0, "ValueError", "sample 17 has no label")
        .exited(0, 5.2, 1).exited(1, 6.0, 1).ended(7.0).root()
    )  # fmt: skip

    assert (root.rank, root.cause, root.exception, root.location, root.host) == (1, "exception", "ValueError", "train.py:11", "a")
    assert (root.cascade, root.said_after[0].seconds_after, root.step) == ([0], 1.0, 4)
    assert root.said_after[0].message.startswith("RuntimeError: [/pytorch")


def test_a_rank_that_a_signal_killed_is_the_root_of_what_its_peers_then_said() -> None:
    root = Job(2).attempt().raised(0, 5.0, "RuntimeError", PEER_GONE).exited(1, 5.1, -9).exited(0, 5.3, 1).ended(6.0).root()

    assert (root.rank, root.cause, root.message, root.location, root.cascade) == (1, "killed", "killed by SIGKILL", "", [0])


def test_processes_of_two_hosts_may_have_the_same_id() -> None:
    job = Job(2, hosts=("a", "b")).attempt().raised(0, 5.0, "RuntimeError", PEER_GONE, failed_pid=7)
    job._lists["starts"] = [msgspec.structs.replace(row, pid=7) for row in job._lists["starts"]]
    end = job._envelope(4.0, 0, rank=1, host="b", writer="r0-1")
    job._lists["ends"].append(records.JobEnded(**end, status="failed", reason="ValueError: sample 17 has no label"))

    root = job.ended(6.0).root()
    assert (root.rank, root.exception) == (1, "ValueError: sample 17 has no label")


def test_a_thread_that_calls_sys_exit_is_what_the_others_wait_for() -> None:
    job = Job(2).attempt().raised(1, 3.0, "SystemExit", "exit code 3", how="thread", location="data.py:71")
    root = job.raised(0, 9.0, "RuntimeError", GAVE_UP).exited(0, 9.1, 1).exited(1, 9.3, -15, terminated=True).ended(10.0).root()

    assert (root.rank, root.cause, root.location) == (1, "exited", "data.py:71")


def test_ranks_that_lost_another_one_twice_are_no_reason_to_stop_since_the_root_is_not_known() -> None:
    job = Job(1)
    for attempt in range(2):
        job.attempt(attempt, steps=0, at=20.0 * attempt).raised(0, 20.0 * attempt + 5.0, "RuntimeError", PEER_GONE, attempt)
        job.ended(20.0 * attempt + 6.0, attempt)

    assert [(one.rank, one.policy) for one in job.failures()] == [(0, "restart"), (0, "restart")]


def test_a_rank_that_left_in_order_while_others_needed_it_is_the_root() -> None:
    job = Job(2).attempt().raised(1, 4.0, "", how="exit", exit_code=0, location="train.py:31")
    root = job.exited(1, 4.2, 0).raised(0, 4.3, "RuntimeError", PEER_GONE).exited(0, 4.6, 1).ended(5.0).root()

    assert (root.rank, root.cause, root.location) == (1, "exited", "train.py:31")


def test_the_rank_for_which_all_others_waited_in_vain_hangs_and_stands_where_torchrun_ended_it() -> None:
    job = Job(3).attempt().raised(0, 12.0, "RuntimeError", GAVE_UP).raised(1, 12.1, "RuntimeError", GAVE_UP)
    job.exited(0, 12.3, 1).exited(1, 12.4, 1, terminated=True).exited(2, 12.5, -15, terminated=True, location="train.py:77")

    root = job.ended(13.0).root()

    assert (root.rank, root.cause, root.location, root.cascade) == (2, "hang", "train.py:77", [0, 1])


def test_a_barrier_that_names_who_did_not_come_is_believed() -> None:
    said = "[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 5000 ms"
    root = Job(3).attempt().raised(0, 9.0, "RuntimeError", said).exited(0, 9.2, 1).ended(10.0).root()

    assert (root.rank, root.cause) == (2, "hang")


def test_the_same_error_on_all_ranks_is_one_failure_with_no_victims() -> None:
    job = Job(3).attempt(steps=0)
    for rank in range(3):
        job.raised(rank, 2.0 + rank / 10, "ImportError", f"no module; pid {rank}", location="train.py:3").exited(rank, 2.5, 1)

    root = job.ended(3.0).root()

    assert (root.rank, root.same_error, root.cascade, root.step) == (0, [1, 2], [], None)


def test_a_port_in_use_is_an_error_of_the_rank_itself_though_it_is_one_of_the_network() -> None:
    said = "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, EADDRINUSE"
    root = Job(2).attempt().raised(0, 3.0, "DistNetworkError", said).raised(1, 2.9, "DistStoreError", "wait timeout after 3000ms")

    assert root.exited(0, 3.2, 1).ended(4.0).root().rank == 0


def test_a_thread_that_died_is_the_root_where_the_rank_itself_only_waits() -> None:
    job = Job(2).attempt().raised(1, 4.0, "OSError", "the bucket is gone", how="thread", location="data.py:9")
    root = job.raised(0, 10.0, "RuntimeError", GAVE_UP).exited(0, 10.2, 1).exited(1, 10.5, -15, terminated=True).ended(11.0).root()

    assert (root.rank, root.location) == (1, "data.py:9")


def test_a_thread_that_dies_in_every_attempt_is_not_what_is_new() -> None:
    job = (
        Job(2).attempt().raised(1, 4.0, "OSError", "telemetry 17", how="thread", location="log.py:9").ended(5.0, status="completed")
    )
    job.attempt(1, at=20.0).raised(1, 24.0, "OSError", "telemetry 18", 1, how="thread", location="log.py:9")
    job.exited(0, 26.0, -9, 1).ended(27.0, 1)

    assert (job.root().rank, job.root().cause) == (0, "killed")


def test_what_the_kernel_killed_for_want_of_memory_is_called_so() -> None:
    job = Job(2).attempt().exited(1, 5.0, -9).raised(0, 5.2, "RuntimeError", PEER_GONE).exited(0, 5.4, 1).ended(6.0)
    job.add("out_of_memory", records.OutOfMemory, 4.9, failed_rank=1, limit_of="/job", location="train.py:40 grow")

    root = job.root()

    assert (root.rank, root.cause, root.location, root.function) == (1, "out_of_memory", "train.py:40", "grow")


@pytest.mark.parametrize("ahead", [-30.0, 30.0])
def test_a_clock_that_is_wrong_does_not_change_which_host_was_first(ahead: float) -> None:
    job = Job(2, hosts=("a", "b")).attempt(steps=5)
    for name in ("starts", "_steps"):
        rows = job._steps if name == "_steps" else job._lists[name]
        rows[:] = [_shifted(row, ahead) if row.host == "b" else row for row in rows]
    job.raised(0, 8.0, "ValueError", "first").raised(1, 8.0 + 1.0 + ahead, "KeyError", "second").ended(12.0)

    root = job.root()

    assert (root.rank, root.exception) == (0, "ValueError")


def _shifted(row: Any, seconds: float) -> Any:
    return msgspec.structs.replace(row, time=row.time + seconds)


@pytest.mark.parametrize(
    "end", [{"status": "completed"}, {"reason": f"{records.INTERRUPTED} (exit code 130)"}], ids=["completed", "interrupted"]
)
def test_what_ended_well_or_by_the_user_did_not_fail(end: dict[str, str]) -> None:
    assert Job(2).attempt().raised(0, 5.0, "KeyError", "x").ended(6.0, **end).failures() == []


def test_a_job_that_was_told_that_its_machine_goes_did_not_fail_of_the_kill() -> None:
    job = Job(2).attempt().exited(0, 6.0, -9).exited(1, 6.1, -9).ended(7.0)
    job.add("notices", records.PreemptionNotice, 4.0, source="aws")

    assert job.failures() == []


def test_a_kill_after_another_launch_is_a_failure_though_the_launch_before_had_a_notice() -> None:
    job = Job(2).attempt().exited(0, 6.0, -9).exited(1, 6.1, -9).ended(7.0)
    job.add("notices", records.PreemptionNotice, 4.0, source="sigterm")
    job.attempt(1, first=4, at=20.0).exited(1, 26.0, -9, 1).ended(27.0, 1)

    assert [(one.attempt, one.cause, one.rank) for one in job.failures()] == [(1, "killed", 1)]


def _twice(second_steps: int, first: int = 1, message: str = "sample 18 is broken") -> list[Failure]:
    job = Job(1).attempt(steps=3).raised(0, 6.0, "ValueError", "sample 17 is broken").ended(7.0)
    job.attempt(1, steps=second_steps, first=first, at=20.0).raised(0, 30.0, "ValueError", message, 1).ended(31.0, 1)
    return job.failures()


def test_the_same_root_twice_without_a_new_step_means_stop() -> None:
    first, second = _twice(second_steps=3)

    assert (first.policy, second.policy, second.repeats_attempt) == ("restart", "stop", 0)


def test_a_new_step_or_another_root_means_that_a_restart_is_worth_it() -> None:
    assert _twice(second_steps=6)[1].policy == "restart"
    assert _twice(second_steps=3, message="another thing")[1].policy == "restart"


def test_an_exception_that_waits_in_a_finally_is_the_root_though_nobody_printed_it() -> None:
    job = Job(2).attempt().raised(1, 5.0, "ZeroDivisionError", "division by zero", how="handled", location="train.py:50")
    job.raised(0, 10.0, "RuntimeError", GAVE_UP).exited(0, 10.2, 1).exited(1, 10.4, -15, terminated=True, location="train.py:52")

    root = job.ended(11.0).root()

    assert (root.rank, root.cause, root.exception, root.location) == (1, "exception", "ZeroDivisionError", "train.py:50")


def test_an_error_that_was_handled_for_long_is_none_where_the_rank_went_on() -> None:
    job = Job(2).attempt().raised(1, 5.0, "KeyError", "x", how="handled")
    root = job.raised(0, 9.0, "ValueError", "own").exited(0, 9.2, 1).exited(1, 9.4, -15, terminated=True).ended(10.0).root()

    assert (root.rank, root.exception) == (0, "ValueError")


def test_a_host_of_which_nothing_more_was_heard_is_lost() -> None:
    job = Job(2, hosts=("a", "b")).attempt().raised(0, 60.0, "RuntimeError", GAVE_UP).exited(0, 60.2, 1).ended(61.0)

    assert (job.root().cause, job.root().rank, job.root().host) == ("host_lost", 1, "b")


def test_of_ranks_that_said_nothing_the_one_that_was_not_where_the_others_gave_up_is_the_root() -> None:
    job = Job(3).attempt().raised(0, 12.0, "RuntimeError", GAVE_UP, location="train.py:60").exited(0, 12.3, 1)
    job.exited(1, 12.5, -15, terminated=True, location="train.py:60").exited(2, 12.5, -15, terminated=True, location="train.py:77")

    assert (job.ended(13.0).root().rank, job.root().location) == (2, "train.py:77")


@pytest.mark.parametrize("waits", [True, False], ids=["seen to wait", "not known"])
def test_where_a_watchdog_ends_all_ranks_the_one_that_stood_elsewhere_hangs_whichever_ended_first(waits: bool) -> None:
    job = Job(3).attempt()
    for rank, at in ((0, 6.0), (1, 6.1), (2, 6.2)):
        stood = {"main_location": "train.py:77"} if rank == 1 else {"main_location": "train.py:60", "main_waits": waits}
        job.raised(rank, at, "", how="exit", exit_code=70, location="watchdog.py:5", **stood).exited(rank, at + 0.1, 70)

    root = job.ended(7.0).root()

    assert (root.rank, root.cause, root.location, root.cascade) == (1, "hang", "train.py:77", [0, 2])


TIMER = "Timeout (0:05:00)!"
TIMERS: list[dict[str, Any]] = [
    {"exit_code": 1, "message": TIMER, "location": "train.py:60", "waits": True},
    {"exit_code": -15, "terminated": True, "location": "train.py:60", "waits": True},
]


@pytest.mark.parametrize("first", TIMERS, ids=["a rank that waits is ended first", "torchrun ends who waits"])
def test_a_rank_that_a_timer_of_faulthandler_ends_hangs_unless_it_waited_for_one_elsewhere(
    first: dict[str, Any],
) -> None:
    seen = {key: value for key, value in first.items() if key != "exit_code"}
    job = Job(2).attempt().exited(0, 6.0, first["exit_code"], **seen).exited(1, 6.1, 1, message=TIMER, location="train.py:77")
    root = job.ended(7.0).root()
    assert (root.rank, root.cause, root.location, root.cascade) == (1, "hang", "train.py:77", [0])

    alone = Job(1).attempt().exited(0, 6.0, 1, message=TIMER, location="train.py:60").ended(7.0).root()
    assert (alone.cause, alone.location, alone.message) == ("hang", "train.py:60", f"exit code 1: {TIMER}")


def test_a_thread_that_ends_its_own_rank_only_is_the_root_though_the_others_wait_at_other_lines() -> None:
    job = (
        Job(3)
        .attempt()
        .raised(0, 5.0, "", how="exit", exit_code=3, location="metrics.py:5", main_location="train.py:60", main_waits=True)
    )
    job.exited(0, 5.1, 3).exited(1, 5.3, -15, terminated=True, location="train.py:60")
    root = job.exited(2, 5.3, -15, terminated=True, location="train.py:77").ended(6.0).root()

    assert (root.rank, root.cause, root.location) == (0, "exited", "metrics.py:5")


def test_where_a_hang_ends_in_an_abort_of_who_waited_the_rank_that_stood_elsewhere_is_the_root() -> None:
    job = Job(3).attempt(steps=8).exited(0, 60.0, -6, location="train.py:60")
    for rank, line in ((1, 60), (2, 77)):
        job.exited(rank, 60.2, -15, terminated=True, location=f"train.py:{line}")
    for rank in range(3):
        seen = {"gone_time": BEGAN + 60.0, "seen_time": BEGAN + 60.0, "reason": "killed"}
        job.add("failures", records.WorkerFailed, 60.3, failed_rank=rank, failed_writer=f"r0-{rank}", **seen)

    assert (job.ended(61.0).root().rank, job.root().cause, job.root().location) == (2, "hang", "train.py:77")


def test_of_ranks_that_all_gave_up_the_one_that_waited_elsewhere_hangs_unless_two_did() -> None:
    for lines, truth in (((60, 60, 71), (2, "hang")), ((60, 65, 71), (0, "exception"))):
        job = Job(3).attempt()
        for rank, line in enumerate(lines):
            job.raised(rank, 10.0 + rank, "RuntimeError", GAVE_UP, location=f"train.py:{line}").exited(rank, 14.0, 1)

        assert (job.ended(15.0).root().rank, job.root().cause) == truth


def test_a_rank_that_was_interrupted_did_not_hang_though_the_others_then_waited_for_it_elsewhere() -> None:
    job = Job(3).attempt().raised(2, 5.0, "KeyboardInterrupt", location="train.py:71")
    job.raised(1, 10.0, "RuntimeError", GAVE_UP, location="train.py:60").exited(
        0, 10.2, -15, terminated=True, location="train.py:60"
    )

    assert (job.ended(15.0).root().rank, job.root().cause) == (2, "exception")


def test_the_line_at_which_a_signal_from_outside_struck_is_no_cause() -> None:
    root = Job(2).attempt().exited(1, 5.0, -15, location="train.py:12").raised(0, 5.1, "RuntimeError", PEER_GONE).ended(6.0).root()

    assert (root.rank, root.cause, root.location, root.message) == (1, "killed", "", "killed by SIGTERM, at train.py:12")
    assert root.signal == "SIGTERM"


def test_an_exit_after_a_printed_error_about_another_rank_is_no_failure_of_its_own() -> None:
    for said, truth in ((f"RuntimeError: {PEER_GONE}", 1), ("ValueError: sample 17 has no label", 0)):
        job = Job(2).attempt().raised(0, 5.0, "", how="exit", exit_code=1, said=["Traceback:", said])

        assert job.exited(0, 5.2, 1).exited(1, 5.3, -9).ended(6.0).root().rank == truth


@pytest.mark.parametrize(("seen_at", "truth"), [(9.8, 1), (10.2, 0)], ids=["may be gone before", "ended after"])
def test_a_rank_of_which_only_the_type_of_error_is_known_may_have_lost_one_that_was_found_gone_later(
    seen_at: float, truth: int
) -> None:
    job = Job(2).attempt(steps=8)
    job._lists["ends"].append(
        records.JobEnded(**job._envelope(10.0, 0, rank=0, writer="r0-0"), status="failed", reason="RuntimeError")
    )
    gone = {"gone_time": BEGAN + 10.4, "seen_time": BEGAN + seen_at, "reason": "killed"}
    job.add("failures", records.WorkerFailed, 10.4, failed_rank=1, failed_writer="r0-1", **gone)

    assert job.ended(11.0).root().rank == truth


def test_the_end_of_a_rank_that_left_may_be_seen_after_the_others_lost_it() -> None:
    root = Job(2).attempt().raised(0, 4.3, "RuntimeError", PEER_GONE).exited(1, 4.4, 0).exited(0, 4.6, 1).ended(5.0).root()

    assert (root.rank, root.cause, root.location, root.cascade) == (1, "exited", "", [0])


def test_the_end_of_a_rank_that_gave_up_is_no_failure_of_its_own_however_late_it_comes() -> None:
    job = Job(2).attempt().raised(0, 10.0, "RuntimeError", GAVE_UP).exited(0, 55.0, 1).exited(1, 56.0, -15, terminated=True)

    assert (job.ended(57.0).root().rank, job.root().cause) == (1, "hang")


def test_no_part_of_a_report_names_another_rank_than_the_root() -> None:
    job = Job(2).attempt(steps=8).raised(0, 10.1, "RuntimeError", PEER_GONE).exited(0, 10.2, 1)
    for rank, at, reason in ((0, 10.3, "RuntimeError"), (1, 10.6, "ValueError")):
        gone = {
            "failed_rank": rank,
            "failed_writer": f"r0-{rank}",
            "gone_time": BEGAN + at,
            "seen_time": BEGAN + at,
            "reason": reason,
        }
        job.add("failures", records.WorkerFailed, at, **gone)
    job.raised(1, 10.05, "ValueError", "sample 17 has no label").exited(1, 10.6, 1).ended(11.0)

    life, attempt = analyze_life(job.records(), now=BEGAN + 100), analyze(job.records())

    assert [one.rank for one in (*life.failures, *attempt.failures)] == [1, 1]
    assert life.life is not None
    assert (life.life.attempts[0].reason, life.life.recoveries[0].rank) == ("rank 1 on a: ValueError", 1)
    assert attempt.quality[0].what == "rank 1 failed with ValueError in step 9; the command ended with exit code 1"
