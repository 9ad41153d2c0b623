"""Reading along what live processes write, while others ship and remove it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

from making import envelope
from tachoscope.spool.writer import SpoolWriter
from tachoscope.supervisor.process_exits import ProcessExits
from tachoscope.supervisor.spool_reader import RunReader
from tachoscope_core.records import records
from tachoscope_core.storage import spool


def heartbeat(number: int) -> bytes:
    return records.encode(records.Heartbeat(**envelope(seq=number), step=number))


def step(number: int) -> bytes:
    return records.encode(records.StepDone(**envelope(seq=number), step=number, wall_seconds=0.0, phase_seconds={}))


def numbers(lines: list[bytes]) -> list[int]:
    return [records.decode(line).step for line in lines]  # type: ignore[union-attr]


def test_only_what_is_new_is_read_and_of_many_steps_the_last(tmp_path: Path) -> None:
    reader, writer = RunReader(tmp_path), SpoolWriter(tmp_path, str(uuid.uuid4()))
    assert reader.lines() == []
    for number in range(1, 50):
        writer.append(step(number))
    writer.append(heartbeat(50))

    assert sorted(numbers(reader.lines())) == [49, 50]
    assert reader.lines() == []
    writer.append(step(51))
    assert numbers(reader.lines()) == [51]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    reader, line = RunReader(tmp_path), heartbeat(7)
    with (tmp_path / spool.segment_name(str(uuid.uuid4()), 0)).open("ab", buffering=0) as file:
        file.write(line[:40])
        assert reader.lines() == []
        file.write(line[40:])

        assert numbers(reader.lines()) == [7]


def test_a_writer_of_several_segments_is_gone_only_when_it_holds_none_and_is_told_once(tmp_path: Path) -> None:
    reader, name = RunReader(tmp_path), str(uuid.uuid4())
    writer = SpoolWriter(tmp_path, name, segment_bytes=2000)
    for number in range(40):
        writer.append(heartbeat(number))
    assert len(reader.lines()) == 40
    assert reader.newly_exited() == []
    writer.append(heartbeat(40))
    writer.close()

    assert reader.newly_exited() == [name]
    assert numbers(reader.lines()) == [40]
    assert [reader.newly_exited(), reader.lines(), reader.newly_exited()] == [[], [], []]


def test_segments_that_were_shipped_and_removed_are_read_to_their_end(tmp_path: Path) -> None:
    reader, name = RunReader(tmp_path), str(uuid.uuid4())
    writer = SpoolWriter(tmp_path, name)
    writer.append(heartbeat(1))
    reader.lines()
    writer.append(heartbeat(2))
    writer.close()
    for path in spool.segments(tmp_path):
        path.unlink()

    assert reader.newly_exited() == [name]
    assert numbers(reader.lines()) == [2]
    tmp_path.rmdir()
    assert reader.lines() == []


HOLDS = """
import os, sys, time
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from tachoscope.spool.writer import SpoolWriter
writer = SpoolWriter(Path(sys.argv[1]), sys.argv[2])
writer.append(b"{}\\n")
if os.fork() == 0:  # as a loader worker does, it keeps the lock
    os.read(0, 1)  # until the test is over
    os._exit(0)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_process_is_gone_at_once_though_its_child_holds_the_lock(tmp_path: Path) -> None:
    name, exits, reader = str(uuid.uuid4()), ProcessExits(), RunReader(tmp_path)
    command = [sys.executable, "-c", HOLDS, str(tmp_path), name, *sys.path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    reader.lines()

    assert not exits.follow(name, os.getpid()), "the process of a number that is another's is not followed"
    assert exits.follow(name, process.pid)
    assert exits.newly_exited() == []
    assert not exits.stopped(name)
    os.kill(process.pid, 19)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert exits.stopped(name)
    process.kill()
    process.wait()
    assert exits.newly_exited() == [name]
    assert reader.newly_exited() == [], "the lock alone would say it late"
    assert exits.newly_exited() == []
    exits.close()
    process.stdin.close()
    process.stdout.close()
