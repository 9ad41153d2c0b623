"""Who was killed when memory ran out, by the kernel's log and by a group's count, in files of the kernel's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from making import envelope
from tachoscope_core.records import records
from tachoscope_node.memory.kill_watch import KillWatch

RANK, WORKER, NEIGHBOUR = 100, 101, 200
V2_STAT = "anon 8192\nfile 4096\nshmem 1024\n"


class Machine:
    """A machine with one limited group of version 2, in which two ranks run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proc, self.mount, self.log = folder / "proc", folder / "sys", folder / "kmsg"
        self.log.write_text("6,1,1,-;an older line\n")
        group = self.mount / "job"
        group.mkdir(parents=True)
        for name, content in (("memory.max", "419430400\n"), ("memory.current", "1\n"), ("memory.stat", V2_STAT)):
            (group / name).write_text(content)
        self.kills = 0
        self.count(0)
        (self.proc / "self" / "ns").mkdir(parents=True)
        (self.proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
        for pid, parent in ((RANK, 1), (RANK + 10, 1), (WORKER, RANK), (NEIGHBOUR, 1)):
            (self.proc / str(pid)).mkdir()
            (self.proc / str(pid) / "cgroup").write_text("0::/job\n")
            self.state(pid, parent, "S")
        self.now = 0.0

    def state(self, pid: int, parent: int, state: str, code: int = 0) -> None:
        fields = [state, str(parent), *["0"] * 47, str(code)]
        (self.proc / str(pid) / "stat").write_text(f"{pid} (python3) {' '.join(fields)}\n")

    def count(self, more: int) -> None:
        self.kills += more
        (self.mount / "job" / "memory.events").write_text(f"low 0\noom_kill {self.kills}\n")

    def killed(self, pid: int, *, says: bool = True, group: str = "/job") -> None:
        self.count(1)
        if says:
            with self.log.open("a") as log:
                log.write(f"6,{self.kills + 1},9,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
                          f"oom_memcg={group},task_memcg={group},task=python3,pid={pid},uid=0\n"
                          f"3,{self.kills + 2},9,-;Memory cgroup out of memory: Killed process {pid} (python3) total-vm:9kB, "
                          "anon-rss:204800kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n")  # fmt: skip

    def watch(self, log: str | None = None) -> KillWatch:
        watch = KillWatch(str(self.log) if log is None else log, proc=str(self.proc), mount=str(self.mount))
        for rank in (0, 1):
            watch.add_rank(envelope(rank)["writer"], rank, 0, RANK + 10 * rank)
        workers = [records.ProcessMemory(pid=WORKER)]
        watch.add_record(records.MemorySampled(**envelope(0), step=41, process=records.ProcessMemory(pid=RANK), workers=workers))
        return watch

    def told(
        self, watch: KillWatch, gone: tuple[int, ...] = (), seconds: float = 0.0, *, last: bool = False
    ) -> list[dict[str, Any]]:
        self.now += seconds
        return [one.fields for one in watch.new_events([envelope(rank)["writer"] for rank in gone], self.now, last=last)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_log_names_the_rank_what_it_held_and_whose_limit_it_was(machine: Machine) -> None:
    watch = machine.watch()
    assert machine.told(watch) == []
    machine.killed(RANK)
    (fields,) = machine.told(watch)

    assert (fields["victim"], fields["failed_rank"], fields["failed_pid"], fields["step"]) == ("rank", 0, RANK, 41)
    assert (fields["limit_of"], fields["limit_bytes"], fields["memory"].anonymous_bytes) == ("/job", 400 << 20, 200 << 20)
    assert fields["sources"] == ["kernel_log", "kill_count"]
    assert machine.told(watch, (0,), 5.0) == [], "the count and the exit say the same again"


@pytest.mark.parametrize(("pid", "victim", "rank"), [(WORKER, "loader_worker", 0), (NEIGHBOUR, "other", None)])
def test_the_log_tells_a_loader_worker_and_a_neighbour_apart(machine: Machine, pid: int, victim: str, rank: int | None) -> None:
    watch = machine.watch()
    machine.killed(pid)
    (fields,) = machine.told(watch)

    assert (fields["victim"], fields.get("failed_rank")) == (victim, rank)


def test_a_kill_in_a_group_of_another_job_is_not_told(machine: Machine) -> None:
    watch = machine.watch()
    machine.killed(9999, group="/other")
    machine.count(-1)

    assert machine.told(watch, (), 5.0) == []


def test_by_the_count_alone_it_was_the_first_rank_that_was_gone_without_a_word(machine: Machine) -> None:
    watch = machine.watch(log="")
    machine.killed(RANK + 10, says=False)
    assert machine.told(watch) == [], "it may be seen gone in a moment"
    (fields,) = machine.told(watch, (1, 0), 0.5)

    assert (fields["victim"], fields["failed_rank"], fields["sources"]) == ("rank", 1, ["kill_count"])
    assert machine.told(watch, (), 5.0) == []


def test_by_the_count_alone_it_was_a_loader_worker_if_a_signal_ended_one(machine: Machine) -> None:
    watch = machine.watch(log="")
    machine.killed(WORKER, says=False)
    machine.state(WORKER, RANK, "Z", code=9)
    (fields,) = machine.told(watch)

    assert (fields["victim"], fields["failed_rank"], fields["failed_pid"]) == ("loader_worker", 0, WORKER)


def test_by_the_count_alone_it_was_another_process_if_all_of_the_job_are_there(machine: Machine) -> None:
    watch = machine.watch(log="")
    machine.killed(NEIGHBOUR, says=False)
    assert machine.told(watch) == []
    (fields,) = machine.told(watch, (), 3.0)

    assert (fields["victim"], "failed_rank" in fields) == ("other", False)


def test_a_rank_that_ended_by_itself_was_not_killed(machine: Machine) -> None:
    watch = machine.watch(log="")
    watch.add_record(records.JobEnded(**envelope(0, 9), status="failed", reason="ValueError"))
    assert machine.told(watch, (0,), 5.0, last=True) == []
    machine.killed(NEIGHBOUR, says=False)

    assert [fields["victim"] for fields in machine.told(watch, (), 5.0, last=True)] == ["other"]


def test_a_kernel_that_does_not_name_the_group_is_taken_to_mean_that_of_the_rank(machine: Machine) -> None:
    watch = machine.watch()
    machine.killed(RANK)
    lines = machine.log.read_text().splitlines(keepends=True)
    machine.log.write_text("".join(line for line in lines if "oom-kill:" not in line))
    fresh = machine.watch()
    with machine.log.open("a") as log:
        log.write(lines[-1])
    (fields,) = machine.told(fresh)

    assert (fields["failed_rank"], fields["limit_of"], fields["limit_bytes"]) == (0, "/job", 400 << 20)
    watch.close()


def test_in_another_namespace_the_pids_of_the_log_are_not_believed(machine: Machine) -> None:
    place = machine.proc / "self" / "ns" / "pid"
    place.unlink()
    place.symlink_to("pid:[4026532999]")
    watch = machine.watch()
    machine.killed(RANK + 10)
    (fields,) = machine.told(watch, (0,), 0.5)

    assert (fields["failed_rank"], fields["sources"]) == (0, ["kill_count"])


def test_the_kill_of_a_neighbour_is_not_a_rank_that_was_gone_before(machine: Machine) -> None:
    """As torchrun ends the others after a failure: without a word, and not for memory."""
    watch = machine.watch(log="")
    assert machine.told(watch, (0,), 1.0) == []
    machine.killed(NEIGHBOUR, says=False)
    machine.told(watch, (), 60.0)

    assert [fields["victim"] for fields in machine.told(watch, (), 5.0)] == ["other"]


def test_the_kill_of_a_neighbour_is_not_the_end_of_an_epoch_at_which_all_workers_go(machine: Machine) -> None:
    watch = machine.watch(log="")
    (machine.proc / str(WORKER) / "stat").unlink()
    machine.killed(NEIGHBOUR, says=False)
    assert machine.told(watch) == []

    assert [fields["victim"] for fields in machine.told(watch, (), 3.0)] == ["other"]


def test_a_worker_that_its_loader_misses_was_killed_though_nothing_is_left_of_it(machine: Machine) -> None:
    watch = machine.watch(log="")
    (machine.proc / str(WORKER) / "stat").unlink()
    machine.killed(WORKER, says=False)
    said = f"DataLoader worker (pid(s) {WORKER}) exited unexpectedly"
    failed = envelope(-1, 9, writer="hooks")
    watch.add_record(records.ProcessFailed(**failed, failed_pid=RANK, how="exception", exception="RuntimeError", message=said))
    watch.add_record(records.JobEnded(**envelope(0, 9), status="failed", reason="RuntimeError"))
    (fields,) = machine.told(watch, (0,), 0.5)

    assert (fields["victim"], fields["failed_rank"], fields["failed_pid"]) == ("loader_worker", 0, WORKER)
    assert fields["sources"] == ["kill_count", "loader"]


def test_a_neighbour_that_the_log_names_is_told_once_whichever_counts_have_its_kill(machine: Machine) -> None:
    """Its own group lies in that of the job, and has the limit; on version 2 the kill counts in both."""
    watch = machine.watch()
    machine.killed(NEIGHBOUR, group="/job/beside")
    assert machine.told(watch, (0,)) == [], "by a limit that no rank is under"
    assert machine.told(watch, (1,), 5.0) == []


def test_a_group_that_is_gone_with_its_victim_had_the_limit_that_was_read_before(machine: Machine) -> None:
    watch = machine.watch(log="")
    machine.killed(RANK, says=False)
    (machine.mount / "job" / "memory.max").unlink()
    (machine.mount / "job" / "memory.max").mkdir()
    (fields,) = machine.told(watch, (0,))

    assert (fields["limit_of"], fields["limit_bytes"]) == ("/job", 400 << 20)


def test_a_neighbour_that_is_killed_again_and_again_does_not_fill_the_store(machine: Machine) -> None:
    watch = machine.watch(log="")
    told = 0
    for _ in range(200):
        machine.killed(NEIGHBOUR, says=False)
        told += len(machine.told(watch, (), 3.0))

    assert 90 <= told <= 110
