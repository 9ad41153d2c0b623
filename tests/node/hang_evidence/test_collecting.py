"""What is collected on a node while a job hangs: of real processes, bounded in time, and honest about what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fake_ras import communicator, fake_ras
from processes import wait_for
from tachoscope.sampling.unlocked_stacks import why_not
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.owner import Owner
from tachoscope_core.storage.hang_bundles import FoundHang, HangBundle, last_hang
from tachoscope_core.storage.store import Store
from tachoscope_node.hang_evidence import collector as collecting
from tachoscope_node.hang_evidence import processes
from tachoscope_node.hang_evidence.bounded import within
from tachoscope_node.hang_evidence.collector import EvidenceCollector, HungJob
from tachoscope_node.hang_evidence.flight_dumps import DumpRoom, take_dump
from tachoscope_node.hang_evidence.node_facts import kernel_lines, ras_answer
from tachoscope_node.hang_evidence.processes import evidence_of
from tachoscope_node.hang_evidence.rank_processes import HungRank, ProcessTable, is_users
from tachoscope_node.nccl.ras_client import RasError

ME = Owner(os.geteuid())
TABLE = ProcessTable()
RANK = """
import os, sys, time
from tachoscope.sampling.other_process import own_locator

segment = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)

def child():
    time.sleep(600)

exec(compile("def stands():\\n    time.sleep(600)", "/data/\\udcff.py", "exec"))  # a name of a file that is no text

if os.fork() == 0:
    child()
print(own_locator(), flush=True)
stands()
"""


@contextmanager
def rank(folder: Path, number: int = 1, **extra: str) -> Iterator[HungRank]:
    """Run a process that writes a segment of a rank, and stands still with a child of its own."""
    writer = str(uuid.uuid4())
    command = [sys.executable, "-c", RANK, str(folder / f"{writer}-000001.jsonl")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **extra})
    assert process.stdout is not None
    try:
        yield HungRank(number, writer, process.pid, 7, "forward", process.stdout.readline().strip())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def collected(folder: Path, *ranks: HungRank) -> HangBundle:
    store = Store(str(folder / "store"))
    collector = EvidenceCollector(store, "node-1")
    collector.begin(HungJob("job", 0, time.time() - 10, 7, 1, "it is in forward, the others wait", ranks, ME))
    collector.wait(60)
    (found,) = last_hang(store, "job").bundles.values()
    return found


@pytest.mark.skipif(bool(why_not()), reason=f"stacks cannot be read here: {why_not()}")
def test_the_bundle_has_the_stacks_of_a_rank_and_of_what_it_started_and_says_what_is_missing(tmp_path: Path) -> None:
    with rank(tmp_path) as hung:
        wait_for(lambda: [one.threads[0].frames[0].split()[-1] for one in evidence_of(hung, TABLE)] == ["stands", "child"])
        found = collected(tmp_path, hung)

    of_rank, of_child = found.processes
    assert [frame.split()[-1] for frame in of_rank.threads[0].frames] == ["stands", "<module>"]
    assert of_rank.threads[0].frames[0] == "/data/?.py:2 stands"
    assert [frame.split()[-1] for frame in of_child.threads[0].frames] == ["child", "<module>"]
    assert (of_rank.kind, of_child.kind, of_rank.step, of_rank.threads[0].state) == ("rank", "child", 7, "S")
    assert of_rank.threads[0].wchan or of_rank.threads[0].syscall
    assert found.network and found.network_seconds > 0
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in found.missing["flight recorder of rank 1"]
    assert "not asked" in found.missing["NCCL RAS"]
    assert found.complete - found.noticed < 30


def test_a_stopped_rank_is_the_one_that_hangs_whoever_was_named(tmp_path: Path) -> None:
    with rank(tmp_path, 0) as stopped, rank(tmp_path, 1) as other:
        os.kill(stopped.pid, signal.SIGSTOP)
        wait_for(lambda: next(evidence_of(stopped, TABLE)).threads[0].state == "T")
        found = collected(tmp_path, stopped, other)

    assert (found.failed_rank, found.why) == (0, "its process is stopped by a signal")


def test_a_process_that_does_not_write_the_ranks_records_is_not_looked_at(tmp_path: Path) -> None:
    forged = HungRank(1, str(uuid.uuid4()), os.getpid(), 1, "", "")
    (found,) = evidence_of(forged, TABLE)

    assert not found.threads and "gone, or belongs to another user" in found.missing["process"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs processes of several users")
def test_only_processes_with_the_rights_of_the_jobs_user_are_looked_at(tmp_path: Path) -> None:
    with rank(tmp_path) as hung:
        assert next(evidence_of(replace(hung, uid=0), TABLE)).threads
        (other,) = evidence_of(replace(hung, uid=4001), TABLE)
        assert not other.threads and "another user" in other.missing["process"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs processes of several users")
def test_a_process_that_gave_rights_back_is_not_looked_at_for_its_user() -> None:
    gives_back = "import os, sys; os.setgroups([]); os.setgid(4001); os.setuid(4001); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", gives_back], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        assert not is_users(process.pid, 4001)  # what it read as root may be in its memory: the kernel hides that from its user
        process.stdin.close()


def test_what_was_read_of_a_number_counts_only_if_it_is_the_same_process_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rank(tmp_path) as hung:

        def ends(pid: int, locator: str) -> list[tuple[int, list[str]]]:  # as `stacks_of`
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED)
            return [(pid, ["of another process"])]

        monkeypatch.setattr(processes, "stacks_of", ends)
        found = next(evidence_of(hung, TABLE))

    assert not found.threads and found.missing == {"process": "it ended while it was looked at"}


def test_processes_that_claim_one_rank_are_looked_at_each(tmp_path: Path) -> None:
    with rank(tmp_path, 0) as one, rank(tmp_path, 0) as other:
        found = collected(tmp_path, one, other)

    assert {process.pid for process in found.processes if process.kind == "rank"} == {one.pid, other.pid}


def test_what_a_job_makes_large_is_cut_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "py-spy").write_text(f"#!{sys.executable}\nwhile True: print('frame', flush=True)\n")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(collecting, "MOST_EVIDENCE_BYTES", 60_000)
    with rank(tmp_path) as hung:
        of_rank, of_child = collected(tmp_path, replace(hung, locator="")).processes

    assert len(of_rank.py_spy) == 32_000 and "more than the first" in of_rank.missing["py_spy"]
    assert not of_child.threads and not of_child.py_spy and "left out" in of_child.missing["threads"]


def test_what_does_not_answer_costs_its_part_only() -> None:
    stands = threading.Event()

    def fails() -> int:
        raise OSError("no such thing")

    began = time.monotonic()
    found, missing = within(0.5, {"good": lambda: 1, "never": lambda: int(stands.wait(60)), "bad": fails})
    assert time.monotonic() - began < 30
    stands.set()

    assert found == {"good": 1}
    assert missing == {"never": "no answer within 0.5 s", "bad": "no such thing"}


def test_a_store_that_is_away_is_said_and_raises_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "store").write_text("a file")
    collector = EvidenceCollector(Store(str(tmp_path / "store")), "node-1", log=said.append)
    collector.begin(HungJob("job", 0, time.time(), 1, -1, "", [], ME))
    collector.wait(60)

    assert len(said) == 1 and "could not be stored" in said[0]


def test_nothing_is_written_to_a_job_of_the_name_that_is_anothers(tmp_path: Path) -> None:
    store, said = Store(str(tmp_path)), list[str]()
    store.claim("job", Owner(os.geteuid(), "other"))
    collector = EvidenceCollector(store, "node-1", log=said.append)
    collector.begin(HungJob("job", 0, time.time(), 1, -1, "", [], ME))
    collector.wait(60)

    assert last_hang(store, "job") == FoundHang() and "belongs to" in said[0]


def test_nothing_is_collected_where_that_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_HANG_EVIDENCE", "0")
    store = Store(str(tmp_path))
    collector = EvidenceCollector(store, "node-1")
    collector.begin(HungJob("job", 0, time.time(), 1, -1, "", [], ME))
    collector.wait(60)

    assert last_hang(store, "job") == FoundHang()


def test_dumps_of_a_node_share_what_they_may_take() -> None:
    room = DumpRoom(10)
    room.take(8, "dump0")
    with pytest.raises(TachoscopeError, match="dump1 of 0 MiB is left out"):
        room.take(8, "dump1")
    room.take(2, "dump2")


def dump_of(hung: HungRank) -> bytes:
    seen = TABLE.of_rank(hung)
    assert seen is not None
    return take_dump(seen, hung.rank, hung.uid, TABLE, DumpRoom())


def test_a_dump_is_asked_for_through_the_pipe_and_taken_when_it_is_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe7.pipe"
    os.mkfifo(pipe)
    asked = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    where = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "pipe"), "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "dump")}

    def recorder() -> None:
        wait_for(lambda: os.read(asked, 16) if True else None)
        with open(tmp_path / "dump7", "wb") as file:
            for _ in range(3):
                file.write(b"part")
                file.flush()
                time.sleep(0.3)

    thread = threading.Thread(target=recorder)
    thread.start()
    try:
        with rank(tmp_path, 7, **where) as hung:
            assert dump_of(hung) == b"partpartpart"
    finally:
        thread.join()
        os.close(asked)


@pytest.mark.parametrize("kind", ["no pipe", "a link", "a file"])
def test_what_is_not_the_jobs_own_pipe_is_not_written_to(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    target.write_text("")
    if kind == "a link":
        (tmp_path / "pipe7.pipe").symlink_to(target)
    elif kind == "a file":
        (tmp_path / "pipe7.pipe").write_text("")
    with rank(tmp_path, 7, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / "pipe")) as hung, pytest.raises(TachoscopeError):
        dump_of(hung)

    assert target.read_text() == "" and not (kind == "a file" and (tmp_path / "pipe7.pipe").read_text())


def test_the_kernels_lines_are_of_devices_and_file_systems_of_the_last_quarter_of_an_hour(tmp_path: Path) -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6
    lines = [
        (now - 1000e6, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus: too long ago"),
        (now - 2e6, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus"),
        (now - 1e6, "Memory cgroup out of memory: Killed process 4711 (of somebody else)"),
        (now, "nfs: server files not responding, still trying"),
    ]
    log = tmp_path / "kmsg"
    log.write_text("".join(f"6,{number},{max(round(at), 0)},-;{text}\n" for number, (at, text) in enumerate(lines)))

    found = [line.partition(" ")[2] for line in kernel_lines(str(log))]
    assert [text.partition(":")[0] for text in found] == ["NVRM", "nfs"] and "too long ago" not in found[0]


def test_ras_is_asked_and_what_speaks_against_that_is_said(tmp_path: Path) -> None:
    with fake_ras() as server:
        server.communicators = [communicator(7, 7, name="0xabc")]
        assert "0xabc" in ras_answer(server.address)
        server.version = "2.24.3"
        with pytest.raises(RasError, match="not safe to query"):
            ras_answer(server.address)
        address = server.address
    with pytest.raises(RasError, match="nothing listens"):
        ras_answer(address)
