"""Xid errors are taken from the kernel log once each, whatever else is in it, and over restarts of the agent.

A file and a pipe stand for /dev/kmsg, with records in the form that the kernel documents; the machine's own is only read.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_readings import Lines, points, uuid
from tachoscope_core.metrics.gpu import GPU_XID_ERRORS, GPU_XID_LAST_SEEN
from tachoscope_node.collectors import kernel_log
from tachoscope_node.collectors.collector import NotSupportedError
from tachoscope_node.collectors.kernel_log import KernelLog, parse_record
from tachoscope_node.gpu.xid.counter import Boot, XidCounter
from tachoscope_node.gpu.xid.kernel_log import (
    LOOK_BACK_SECONDS,
    UUID_WAIT_SECONDS,
    KernelLogCollector,
    XidLine,
    parse_xid,
)
from trying import each

BOOT = Boot("boot-1", 1_000_000.0)
UUIDS = {"0000:9b:00": uuid(3), "0000:18:00": uuid(0)}
XID = "NVRM: Xid (PCI:0000:9b:00): {}, pid='<unknown>', name=<unknown>, what the driver says"


class Log:
    """A fake /dev/kmsg: a file to which records are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = 0
        path.touch()

    def write(self, text: str, *, at: float = 60.0, priority: int = 4) -> None:
        with self.path.open("a") as file:
            file.write(f"{priority},{self.sequence},{round(at * 1e6)},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9b:00.0\n")
        self.sequence += 1


class Node:
    """What outlives an agent: the log, the state directory, the clock."""

    def __init__(self, folder: Path) -> None:
        self.log = Log(folder / "kmsg")
        self.state = folder / "state"
        self.state.mkdir()
        self.now = BOOT.seconds + 100.0
        self.boot = BOOT
        self.said = Lines()
        self.uuids: Callable[[str], str | None] = UUIDS.get
        self.start()

    def start(self) -> None:
        self.counter = XidCounter(self.state, self.boot, self.said.log)
        self.collector = KernelLogCollector(
            str(self.log.path),
            self.counter,
            lambda address: self.uuids(address),
            self.boot,
            self.said.log,
            unix_clock=lambda: self.now,
        )

    def restart(self) -> None:
        """The agent was killed: nothing was closed or saved in order."""
        self.collector.close()
        self.start()

    def collect(self) -> dict[tuple[str, str], float]:
        assert self.collector.collect() == []
        return {labels[1:]: value for labels, value in points(self.counter.families(), GPU_XID_ERRORS).items()}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.collector.close()


@each(
    ("text", "gpu", "xid", "detail"),
    [
        (
            "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "0000:9b:00",
            79,
            "pid='<unk",
        ),
        ("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", "0000:9b:00", 79, "GPU has"),
        ("NVRM: Xid (PCI:0000:18:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000", "0000:18:00", 31, "pid=4242"),
        ("NVRM: Xid (PCI:0000:41:00 GPU-I:05): 94, pid=7, name=a (b), Contained", "0000:41:00", 94, "pid=7"),
        ("NVRM: Xid (PCI:0000:41:00 GPU-I:05 GPU-CI:00): 13, pid=7, name=x, Graphics", "0000:41:00", 13, "pid=7"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", 14, "Channel"),
        ("NVRM: Xid (0001:00): 8, Channel 00000003", "0000:01:00", 8, "Channel"),
        ("NVRM: Xid (PCI:0009:01:00): 45, pid=1, name=x, Ch 0 caused by previous Xid 31", "0009:01:00", 45, "pid=1"),
        ("NVRM: Xid (PCI:0000:0a:00): 62, 0096(1c54) 00000000 00000000", "0000:0a:00", 62, "0096"),
        ("NVRM: Xid (PCI:10000:C1:00.0): 119, pid=2, name=nv, Timeout", "10000:c1:00", 119, "pid=2"),
        (f"NVRM: Xid ({uuid(5)}): 48, pid=3, name=x, DBE", uuid(5), 48, "pid=3"),
    ],
)
def test_all_forms_that_drivers_print_are_understood(text: str, gpu: str, xid: int, detail: str) -> None:
    line = parse_xid(text)
    assert line is not None
    assert (line.gpu, line.xid) == (gpu, xid)
    assert line.detail.startswith(detail)


@each(
    "text",
    [
        "NVRM: Xid (PCI:0000:9b:00): seventy-nine, pid=1",
        "NVRM: Xid (PCI:0000:9b:00): 12345678901234567890, pid=1",
        "NVRM: Xid (PCI:zzzz:9b:00): 79, pid=1",
        "NVRM: Xid (): 79",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "python3 says NVRM: Xid (PCI:0000:9b:00): 79, pid=1",
        "NVRM: GPU at PCI:0000:9b:00: " + uuid(3),
        "",
    ],
)
def test_what_is_no_xid_error_is_none(text: str) -> None:
    assert parse_xid(text) is None


def test_planted_errors_are_counted_exactly_among_other_lines(node: Node) -> None:
    for number in range(23):
        node.log.write("usb 1-1: new high-speed USB device", priority=6)
        node.log.write(XID.format(79))
        node.log.write(f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module {number}")
        if number % 3 == 0:
            node.collect()
    assert node.collect() == {(uuid(3), "79"): 23}


def test_a_line_that_a_process_wrote_into_the_log_counts_nothing(node: Node) -> None:
    """The kernel lets no process claim its own facility, 0: it marks what is written to /dev/kmsg as facility 1 or above."""
    for facility in (1, 3, 16):
        node.log.write(XID.format(79), priority=facility << 3 | 2)
    assert node.collect() == {}
    node.log.write(XID.format(79), priority=2)
    assert node.collect() == {(uuid(3), "79"): 1}


def test_errors_are_not_counted_again_after_a_restart_and_those_meanwhile_are(node: Node) -> None:
    node.log.write(XID.format(79))
    node.log.write(XID.format(31))
    assert node.collect() == {(uuid(3), "79"): 1, (uuid(3), "31"): 1}

    node.restart()
    assert node.collect() == {(uuid(3), "79"): 1, (uuid(3), "31"): 1}
    node.collector.close()
    node.now += 10 * LOOK_BACK_SECONDS
    node.log.write(XID.format(31), at=110.0)
    node.start()
    assert node.collect() == {(uuid(3), "79"): 1, (uuid(3), "31"): 2}
    node.restart()
    assert node.collect() == {(uuid(3), "79"): 1, (uuid(3), "31"): 2}


def test_an_agent_killed_before_it_showed_an_error_counts_it_after(node: Node) -> None:
    node.collect()
    node.log.write(XID.format(79))
    node.collector.collect()
    node.restart()
    assert node.collect() == {(uuid(3), "79"): 1}


def test_an_agent_that_never_ran_here_takes_only_what_is_young(node: Node) -> None:
    node.now = BOOT.seconds + LOOK_BACK_SECONDS + 500.0
    node.restart()
    node.log.write(XID.format(62), at=400.0)
    node.log.write(XID.format(79), at=600.0)
    assert node.collect() == {(uuid(3), "79"): 1}
    assert list(points(node.counter.families(), GPU_XID_LAST_SEEN).values()) == [BOOT.seconds + 600.0]


def test_after_a_boot_the_whole_log_is_new(node: Node) -> None:
    node.log.write(XID.format(79))
    node.collect()

    node.log.path.unlink()
    node.log = Log(node.log.path)
    node.boot = Boot("boot-2", BOOT.seconds + 5000.0)
    node.now = node.boot.seconds + 10 * LOOK_BACK_SECONDS
    node.log.write(XID.format(79), at=5.0)
    node.restart()
    assert node.collect() == {(uuid(3), "79"): 2}
    assert not node.counter.all()[0].reset_since


def test_an_error_that_comes_while_the_agent_reads_has_the_agents_time(node: Node) -> None:
    """The kernel's stamps drift by minutes in a month."""
    node.collect()
    node.now += 50.0
    node.log.write(XID.format(79), at=9.0)
    node.collect()
    assert list(points(node.counter.families(), GPU_XID_LAST_SEEN).values()) == [node.now]


def test_an_error_waits_for_nvml_to_name_its_gpu(node: Node) -> None:
    node.uuids = lambda _: None
    node.log.write(XID.format(79))
    assert node.collect() == {}
    node.uuids = UUIDS.get
    assert node.collect() == {(uuid(3), "79"): 1}


def test_an_error_that_waits_is_not_lost_by_a_restart(node: Node) -> None:
    node.collect()
    node.uuids = lambda _: None
    node.log.write(XID.format(79))
    node.log.write(f"NVRM: Xid ({uuid(1)}): 31, pid=1, name=x, fault")
    assert node.collect() == {(uuid(1), "31"): 1}
    node.restart()
    node.uuids = UUIDS.get
    counted = node.collect()
    assert counted[uuid(3), "79"] == 1


def test_an_error_of_a_gpu_that_nobody_knows_counts_under_its_address(node: Node) -> None:
    node.uuids = lambda _: None
    node.log.write(XID.format(79))
    node.collect()
    node.now += UUID_WAIT_SECONDS
    assert node.collect() == {("PCI:0000:9b:00", "79"): 1}


def test_the_kernel_itself_names_the_gpu_where_nvml_cannot(node: Node) -> None:
    node.uuids = lambda _: None
    node.log.write(f"NVRM: GPU at PCI:0000:9b:00: {uuid(9)}")
    node.log.write(XID.format(79))
    assert node.collect() == {(uuid(9), "79"): 1}


def test_lines_that_are_very_long_or_torn_do_no_harm(node: Node) -> None:
    with node.log.path.open("ab") as file:
        file.write(b"4,0,1,-;" + b"A" * 3_000_000)
    node.collect()
    assert len(node.collector._kernel_log._rest) <= 65536
    with node.log.path.open("ab") as file:
        file.write(b"\n4,1,60000000,-;NVRM: Xid (PCI:0000:9b:00): 79, GPU has")
    assert node.collect() == {}
    with node.log.path.open("ab") as file:
        file.write(b" fallen off the bus.\n")
    assert node.collect() == {(uuid(3), "79"): 1}


@given(st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda text: f"4,1,2,-;NVRM: Xid ({text}".encode()))))
def test_no_line_whatever_raises(lines: list[bytes]) -> None:
    for line in lines:
        record = parse_record(line)
        if record is not None:
            found = parse_xid(record.text)
            assert found is None or isinstance(found, XidLine)


def test_a_pipe_without_a_line_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    log = KernelLog(str(tmp_path / "kmsg"))
    assert list(log.records()) == []
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    assert list(log.records()) == []
    os.write(writer, b"4,7,60000000,-;NVRM: Xid (PCI:0000:9b:00): 79, x\n")
    assert [record.sequence for record in log.records()] == [7]
    os.close(writer)
    assert list(log.records()) == []
    log.close()


def test_records_that_the_kernel_dropped_are_said_and_the_next_are_counted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.log.write("the first")
    node.collect()
    node.log.sequence += 1000
    node.log.write(XID.format(79))
    answers: list[Any] = [OSError(errno.EPIPE, "Broken pipe")]
    read = os.read

    def overrun(descriptor: int, size: int) -> bytes:
        if answers:
            raise answers.pop()
        return read(descriptor, size)

    monkeypatch.setattr(kernel_log.os, "read", overrun)
    assert node.collect() == {(uuid(3), "79"): 1}
    assert [line for line in node.said.lines if "dropped 1000 records" in line]


def test_a_read_that_fails_is_a_failure_and_the_next_run_goes_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.log.write(XID.format(79))
    with monkeypatch.context() as broken:
        broken.setattr(kernel_log.os, "read", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(OSError, match="Input/output error"):
            node.collector.collect()
    assert node.collect() == {(uuid(3), "79"): 1}


def test_a_log_that_is_not_there_is_not_supported_and_the_way_out_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="mount the host's /dev/kmsg"):
        list(KernelLog(str(tmp_path / "kmsg")).records())


def test_a_log_that_may_not_be_read_is_not_supported_and_the_missing_right_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.touch()
    path.chmod(0)
    root = os.geteuid() == 0
    if root:  # root may read all: do it as nobody
        os.seteuid(65534)
    try:
        with pytest.raises(NotSupportedError, match="CAP_SYSLOG"):
            list(KernelLog(str(path)).records())
    finally:
        if root:
            os.seteuid(0)


def test_the_log_of_this_machine_is_read_to_its_end_or_the_right_is_missing() -> None:
    log = KernelLog("/dev/kmsg")
    try:
        if not stat.S_ISCHR(os.stat("/dev/kmsg").st_mode):
            pytest.skip("/dev/kmsg is not a device here")
        sequences = [record.sequence for record in log.records(limit=200)]
    except (FileNotFoundError, NotSupportedError) as error:
        pytest.skip(str(error))
    finally:
        log.close()
    assert sequences == sorted(set(sequences))
