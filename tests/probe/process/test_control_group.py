"""What control groups say of memory, from files in the form of the kernel's, of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachoscope.process import control_group
from tachoscope_core.records.memory import ControlGroupMemory

V1_STAT = "cache 4096\nrss 100\nhierarchical_memory_limit 9\ntotal_cache 4096\ntotal_rss 8192\ntotal_shmem 1024\n"
V2_STAT = "anon 8192\nfile 4096\nkernel 77\nshmem 1024\nfile_mapped 5\n"
V2_EVENTS = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 2\noom_group_kill 0\n"


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    return tmp_path / "proc"


def found(tmp_path: Path, proc: Path, lines: str) -> tuple[control_group.ControlGroup, ControlGroupMemory | None]:
    (proc / "7" / "cgroup").write_text(lines)
    group = control_group.memory_group(7, str(proc), str(tmp_path / "sys"))
    assert group is not None
    limited = control_group.limited(group)
    assert limited is not None
    return limited, control_group.memory_of(limited)


def test_version_2_the_limit_of_a_group_above_counts_and_max_is_none(tmp_path: Path, proc: Path) -> None:
    above = tmp_path / "sys" / "pod"
    put(above, memory__max="65536\n", memory__current="12288\n", memory__stat=V2_STAT, memory__events=V2_EVENTS)
    put(above / "job", memory__max="max\n", memory__current="12288\n", memory__stat=V2_STAT, memory__events=V2_EVENTS)
    group, memory = found(tmp_path, proc, "0::/pod/job\n")

    assert group.path == "/pod"
    assert memory == ControlGroupMemory(
        path="/pod", limit_bytes=65536, usage_bytes=12288, anonymous_bytes=8192, file_bytes=3072, shared_bytes=1024, kills=2
    )


def test_version_1_the_kills_are_in_oom_control_and_the_largest_number_is_no_limit(tmp_path: Path, proc: Path) -> None:
    job = tmp_path / "sys" / "memory" / "job"
    files = {
        "memory__usage_in_bytes": "12288\n",
        "memory__stat": V1_STAT,
        "memory__oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }
    put(job, memory__limit_in_bytes="9223372036854771712\n", **files)
    (job.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    group, memory = found(tmp_path, proc, "4:memory:/job\n0::/\n")

    assert memory == ControlGroupMemory(
        path="/job", usage_bytes=12288, anonymous_bytes=8192, file_bytes=3072, shared_bytes=1024, kills=3
    )
    (job / "memory.limit_in_bytes").write_text("65536\n")
    assert control_group.limit_bytes(group) == 65536


def test_a_container_that_sees_its_path_on_the_host_reads_the_root_of_what_is_mounted(tmp_path: Path, proc: Path) -> None:
    put(tmp_path / "sys" / "memory", memory__limit_in_bytes="65536\n", memory__usage_in_bytes="1\n", memory__stat=V1_STAT)
    group, _ = found(tmp_path, proc, "4:memory:/docker/0123\n")

    assert group.path == "/"


def test_a_process_that_is_gone_and_files_that_are_cut_off_raise_nothing(tmp_path: Path, proc: Path) -> None:
    assert control_group.memory_group(8, str(proc), str(tmp_path)) is None
    (proc / "7" / "cgroup").write_text("4:memory\n")
    assert control_group.memory_group(7, str(proc), str(tmp_path)) is None
    gone = control_group.ControlGroup(str(tmp_path), "/gone", unified=True)
    assert (control_group.kill_count(gone), control_group.memory_of(gone), control_group.limit_bytes(gone)) == (None, None, None)


def test_of_two_limits_the_one_that_leaves_less_counts(tmp_path: Path, proc: Path) -> None:
    above = tmp_path / "sys" / "pod"
    put(above, memory__max="100000\n", memory__current="1\n", memory__stat="anon 90000\nfile 0\nshmem 0\n")
    put(above / "job", memory__max="65536\n", memory__current="1\n", memory__stat=V2_STAT)

    assert found(tmp_path, proc, "0::/pod/job\n")[0].path == "/pod"


@pytest.mark.parametrize(
    ("name", "content"), [("memory.max", "9 bytes\n"), ("memory.max", None), ("memory.stat", "file 4096\n"), ("memory.stat", None)]
)
def test_a_group_that_cannot_be_read_is_not_known_and_never_without_a_limit(
    tmp_path: Path, proc: Path, name: str, content: str | None
) -> None:
    above = tmp_path / "sys" / "pod"
    put(above, memory__max="65536\n", memory__current="1\n", memory__stat=V2_STAT)
    put(above / "job", memory__max="max\n", memory__current="1\n", memory__stat=V2_STAT)
    (above / name).unlink()
    if content is None:
        (above / name).mkdir()  # to read it is refused, also to root
    else:
        (above / name).write_text(content)
    (proc / "7" / "cgroup").write_text("0::/pod/job\n")
    group = control_group.memory_group(7, str(proc), str(tmp_path / "sys"))

    assert group is not None
    assert control_group.limited(group) is None


def test_a_controller_that_is_mounted_nowhere_is_not_known_and_one_that_is_off_counts_nothing(tmp_path: Path, proc: Path) -> None:
    (proc / "7" / "cgroup").write_text("4:memory:/job\n")
    group = control_group.memory_group(7, str(proc), str(tmp_path / "sys"))
    assert group is not None
    assert control_group.limited(group) is None

    put(tmp_path / "sys", cgroup__controllers="cpu io\n")
    (proc / "7" / "cgroup").write_text("0::/\n")
    assert control_group.memory_group(7, str(proc), str(tmp_path / "sys")) is None
