"""Throttling of the ranks' control groups, by the group's own quota and by the nearest above it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trees import collected, plant, points

from tachoscope_core.metrics.host import CGROUP_PERIODS, CGROUP_THROTTLED_PERIODS, CGROUP_THROTTLED_SECONDS
from tachoscope_node.collectors.cgroup import CgroupCollector, Ranks
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError
from tachoscope_node.common.kernel_files import MalformedError

_POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7.slice"
_CONTAINER = f"{_POD}/cri-containerd-23.scope"


def v2(
    path: str, *, quota: str = "max", periods: int = 0, throttled: int = 0, microseconds: int = 0, root: str = ""
) -> dict[str, str]:
    stat = (
        f"usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {microseconds}\n"
    )
    return {f"sys/fs/cgroup{root}{path}/cpu.stat": stat, f"sys/fs/cgroup{root}{path}/cpu.max": f"{quota} 100000\n"}


def v1(
    path: str, *, quota: int = -1, periods: int = 0, throttled: int = 0, nanoseconds: int = 0, root: str = "/cpu"
) -> dict[str, str]:
    stat = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {nanoseconds}\nnr_bursts 0\nburst_time 0\n"
    return {f"sys/fs/cgroup{root}{path}/cpu.stat": stat, f"sys/fs/cgroup{root}{path}/cpu.cfs_quota_us": f"{quota}\n"}


def ranks(**pids: int) -> Ranks:
    return lambda: {("train", rank.removeprefix("r")): pid for rank, pid in pids.items()}


def collector(tmp_path: Path, files: dict[str, str], of: Ranks, own: str = "none") -> CgroupCollector:
    root = plant(tmp_path, files)
    return CgroupCollector(of, f"{root}/proc", f"{root}/sys", own=f"{root}/{own}")


def test_planted_throttling_of_a_ranks_own_group(tmp_path: Path) -> None:
    files = {"proc/5/cgroup": f"0::{_CONTAINER}\n"} | v2(
        _CONTAINER, quota="200000", periods=100, throttled=23, microseconds=2_300_000
    )

    families = collected(collector(tmp_path, files, ranks(r0=5)))

    assert points(families, CGROUP_THROTTLED_SECONDS) == {("train", "0", "own"): 2.3}
    assert points(families, CGROUP_THROTTLED_PERIODS) == {("train", "0", "own"): 23}
    assert points(families, CGROUP_PERIODS) == {("train", "0", "own"): 100}


def test_a_pod_that_is_throttled_as_a_whole_shows_though_the_ranks_own_group_has_no_quota(tmp_path: Path) -> None:
    files = (
        {"proc/5/cgroup": f"0::{_CONTAINER}\n"} | v2(_CONTAINER) | v2(_POD, quota="100000", periods=50, throttled=7, microseconds=5)
    )
    files |= v2("/kubepods.slice", quota="6400000", periods=9, throttled=9, microseconds=9)

    families = collected(collector(tmp_path, files, ranks(r0=5)))

    assert points(families, CGROUP_THROTTLED_PERIODS) == {("train", "0", "own"): 0, ("train", "0", "ancestor"): 7}


def test_v1_counts_in_nanoseconds_and_its_controllers_may_share_a_folder(tmp_path: Path) -> None:
    files = {"proc/5/cgroup": f"9:memory:/other\n4:cpu,cpuacct:{_CONTAINER}\n1:name=systemd:/x\n"}
    files |= v1(_CONTAINER, nanoseconds=0, root="/cpu,cpuacct")
    files |= v1(_POD, quota=50000, periods=5, throttled=3, nanoseconds=2_300_000_000, root="/cpu,cpuacct")

    families = collected(collector(tmp_path, files, ranks(r0=5)))

    assert points(families, CGROUP_THROTTLED_SECONDS) == {("train", "0", "own"): 0, ("train", "0", "ancestor"): 2.3}


def test_v1_is_found_where_only_the_plain_folder_is_there(tmp_path: Path) -> None:
    files = {"proc/5/cgroup": "4:cpuacct,cpu:/a\n"} | v1("/a", quota=1, nanoseconds=23_000_000_000)

    assert points(collected(collector(tmp_path, files, ranks(r0=5))), CGROUP_THROTTLED_SECONDS)["train", "0", "own"] == 23


def test_on_a_hybrid_machine_the_hierarchy_with_the_cpu_controller_counts(tmp_path: Path) -> None:
    in_v1 = {"proc/5/cgroup": "4:cpu:/a\n0::/b\n"} | v1("/a", quota=1, throttled=23) | v2("/b", throttled=1, root="/unified")
    in_v2 = {"proc/6/cgroup": "4:memory:/a\n0::/c\n"} | v2("/c", quota="1", throttled=29, root="/unified")

    families = collected(collector(tmp_path, in_v1 | in_v2, ranks(r0=5, r1=6)))

    assert points(families, CGROUP_THROTTLED_PERIODS) == {("train", "0", "own"): 23, ("train", "1", "own"): 29}


def test_ranks_of_one_container_show_the_same_and_ranks_of_two_show_their_own(tmp_path: Path) -> None:
    files = {f"proc/{pid}/cgroup": f"0::/{name}\n" for pid, name in ((5, "a"), (6, "a"), (7, "b"))}
    files |= v2("/a", quota="1", throttled=23) | v2("/b", quota="1", throttled=29)

    found = points(collected(collector(tmp_path, files, ranks(r0=5, r1=6, r2=7))), CGROUP_THROTTLED_PERIODS)

    assert [found["train", rank, "own"] for rank in "012"] == [23, 23, 29]


def test_a_process_that_went_since_the_ranks_were_listed_is_left_out(tmp_path: Path) -> None:
    files = {"proc/5/cgroup": "0::/a\n"} | v2("/a", quota="1")

    found = points(collected(collector(tmp_path, files, ranks(r0=5, r1=6))), CGROUP_PERIODS)

    assert set(found) == {("train", "0", "own")}


def test_a_group_that_goes_between_two_runs_is_left_out(tmp_path: Path) -> None:
    files = {"proc/5/cgroup": "0::/a\n", "proc/6/cgroup": "0::/b\n"} | v2("/a", quota="1") | v2("/b", quota="1")
    two = collector(tmp_path, files, ranks(r0=5, r1=6))
    assert len(points(collected(two), CGROUP_PERIODS)) == 2

    for file in (tmp_path / "sys/fs/cgroup/b").iterdir():
        file.unlink()
    plant(tmp_path, {"proc/6/cgroup": "0::/b (deleted)\n"})

    assert len(points(collected(two), CGROUP_PERIODS)) == 1


def test_a_rank_that_moves_to_another_group_is_followed(tmp_path: Path) -> None:
    one = collector(
        tmp_path, {"proc/5/cgroup": "0::/a\n"} | v2("/a", quota="1", throttled=1) | v2("/b", quota="1", throttled=23), ranks(r0=5)
    )
    collected(one)

    plant(tmp_path, {"proc/5/cgroup": "0::/b\n"})

    assert points(collected(one), CGROUP_THROTTLED_PERIODS) == {("train", "0", "own"): 23}


@pytest.mark.parametrize(
    ("files", "of", "reason"),
    [
        ({}, ranks(), "no rank runs on this node"),
        ({}, ranks(r0=5), "the processes of all ranks have ended"),
        ({"proc/5/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.stat": "usage_usec 1\n"}, ranks(r0=5), "no rank is under a CPU quota"),
        ({"proc/5/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "usage_usec 1\n"}, ranks(r0=5), "no rank is under a CPU quota"),
    ],
)
def test_nothing_to_tell_is_no_data_with_its_reason(tmp_path: Path, files: dict[str, str], of: Ranks, reason: str) -> None:
    with pytest.raises(NoDataError, match=reason):
        collector(tmp_path, files, of).collect()


def test_groups_that_the_agent_cannot_see_are_not_taken_for_groups_without_a_quota(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="cgroup/a, the control group of process 5, does not exist: mount the host's /sys"):
        collector(tmp_path, {"proc/5/cgroup": "0::/a\n", "sys/fs/cgroup/own/cpu.stat": ""}, ranks(r0=5)).collect()


def test_from_a_cgroup_namespace_the_hosts_path_is_found(tmp_path: Path) -> None:
    files = {"proc/5/cgroup": "0::/../../kubepods-burstable-pod7.slice/cri-containerd-23.scope\n"}
    files |= v2(_CONTAINER, quota="1", throttled=23) | v2("/kubepods.slice/kubepods-burstable.slice/agent.slice/agent.scope")
    own = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/agent.slice/agent.scope"

    found = points(collected(collector(tmp_path, files, ranks(r0=5), own)), CGROUP_THROTTLED_PERIODS)

    assert found == {("train", "0", "own"): 23}


def test_from_a_cgroup_namespace_without_the_hosts_tree_it_is_not_supported_and_says_what_to_do(tmp_path: Path) -> None:
    files = {"proc/5/cgroup": "0::/../a\n"} | v2("/a")

    with pytest.raises(NotSupportedError, match="cgroup namespace of its own.*mount the host's /sys into it"):
        collector(tmp_path, files, ranks(r0=5)).collect()


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        ("proc/5/cgroup", "0::/a\nnonsense\n", "proc/5/cgroup:2: cannot be read: 'nonsense'"),
        ("sys/fs/cgroup/a/cpu.stat", "nr_periods 1\nnr_throttled x\n", "a/cpu.stat:2: cannot be read: 'nr_throttled x'"),
        ("sys/fs/cgroup/cpu.max", "", "cpu.max:1: cannot be read"),
    ],
)
def test_content_that_is_not_the_kernels_is_named(tmp_path: Path, file: str, content: str, place: str) -> None:
    files = {"proc/5/cgroup": "0::/a\n"} | v2("/a", quota="1") | {file: content}

    with pytest.raises(MalformedError, match=place):
        collector(tmp_path, files, ranks(r0=5)).collect()


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/cpu/cgroup.procs", os.W_OK), reason="needs root and cgroup v1's cpu controller")
def test_a_real_process_under_a_real_quota_is_throttled() -> None:
    group = Path(f"/sys/fs/cgroup/cpu/tachoscope-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text("10000")
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burner:
            (group / "cgroup.procs").write_text(str(burner.pid))
            end, families = time.monotonic() + 60, []
            while points(families, CGROUP_THROTTLED_SECONDS).get(("train", "0", "own"), 0) <= 0.6 and time.monotonic() < end:
                time.sleep(0.1)
                families = collected(CgroupCollector(ranks(r0=burner.pid)))
            burner.kill()
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.01)

    assert points(families, CGROUP_THROTTLED_SECONDS)["train", "0", "own"] > 0.3
    assert points(families, CGROUP_THROTTLED_PERIODS)["train", "0", "own"] >= 5
