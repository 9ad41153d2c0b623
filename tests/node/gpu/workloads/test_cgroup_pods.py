"""The pod of a process, from control groups as kubelets and container runtimes name them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from trees import plant

from tachoscope_node.gpu.workloads.cgroup_pods import CgroupPlacement, placement_of

UID = "a9c80282-3f6b-4d5b-84d5-a137a6668011"
UID_ = UID.replace("-", "_")
HASH = "d2f4e1c0b3a5968778695a4b3c2d1e0f"
CONTAINER = "0123456789abcdef" * 4


def process(root: Path, *groups: str, nspid: str | None = "4711\t17") -> str:
    status = "Name:\tpython\nPid:\t4711\n" + (f"NSpid:\t{nspid}\n" if nspid else "") + "Threads:\t1\n"
    return plant(root, {"4711/cgroup": "".join(f"{group}\n" for group in groups), "4711/status": status})


@pytest.mark.parametrize(
    ("groups", "uid"),
    [
        ([f"0::/kubepods/burstable/pod{UID}/{CONTAINER}"], UID),
        ([f"0::/kubepods/pod{UID}/{CONTAINER}"], UID),
        ([f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{CONTAINER}.scope"], UID),
        ([f"0::/kubepods.slice/kubepods-pod{UID_}.slice/crio-{CONTAINER}.scope"], UID),
        ([f"0::/kubepods.slice/kubepods-pod{UID_}.slice/crio-{CONTAINER}.scope/container"], UID),
        ([f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/docker-{CONTAINER}.scope"], UID),
        ([f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID_}.slice/cri-containerd-{CONTAINER}.scope"], UID),
        # containerd with the systemd name but its own driver
        ([f"0::/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{CONTAINER}"], UID),
        # v1, and the process itself moved to the root of the unified hierarchy
        (
            [
                f"12:pids:/kubepods/besteffort/pod{UID}/{CONTAINER}",
                f"5:cpu,cpuacct:/kubepods/besteffort/pod{UID}/{CONTAINER}",
                "0::/",
            ],
            UID,
        ),
        ([f"1:name=systemd:/kubepods.slice/kubepods-pod{UID_}.slice/docker-{CONTAINER}.scope"], UID),
        # seen from a control-group namespace of the agent's own
        ([f"0::/../../pod{UID}/{CONTAINER}"], UID),
        ([f"0::/../../kubepods-burstable-pod{UID_}.slice/cri-containerd-{CONTAINER}.scope"], UID),
        # a static pod
        ([f"0::/kubepods/burstable/pod{HASH}/{CONTAINER}"], HASH),
        ([f"0::/kubepods.slice/kubepods-pod{UID_}.slice"], UID),
        (["0::/"], ""),
        (["0::/user.slice/user-1000.slice/session-3.scope"], ""),
        ([f"0::/system.slice/docker-{CONTAINER}.scope"], ""),
        (["0::/kubepods/burstable/pod123/abc"], ""),
        ([f"0::/kubepods/burstable/pod{UID}7/{CONTAINER}"], ""),
        (["0::/machine.slice/libpod-" + CONTAINER + ".scope"], ""),
        ([f"0::/user.slice/mypod{UID}/x"], ""),
        ([], ""),
    ],
)
def test_the_control_group_tells_the_pod(tmp_path: Path, groups: list[str], uid: str) -> None:
    assert placement_of(4711, process(tmp_path, *groups)) == CgroupPlacement(uid, 17)


@pytest.mark.parametrize(("nspid", "inner"), [("4711", 4711), ("4711\t17", 17), ("4711\t88\t1", 1), (None, 0)])
def test_the_innermost_id_is_the_one_that_the_process_sees_itself(tmp_path: Path, nspid: str | None, inner: int) -> None:
    assert placement_of(4711, process(tmp_path, "0::/", nspid=nspid)) == CgroupPlacement("", inner)


def test_a_process_that_has_gone_is_nowhere(tmp_path: Path) -> None:
    assert placement_of(4711, str(tmp_path)) is None


def test_this_process_sees_itself() -> None:
    found = placement_of(os.getpid())
    assert found is not None
    assert found.inner_pid == os.getpid()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to make a namespace of process ids")
def test_a_process_in_a_namespace_of_its_own_has_the_id_that_it_sees_there() -> None:
    command = ["unshare", "--pid", "--fork", "sh", "-c", "echo $$; read line"]
    shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    seen = int(shell.stdout.readline())
    (child,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    try:
        found = placement_of(int(child))
        assert found is not None
        assert (seen, found.inner_pid) == (1, 1)
    finally:
        shell.communicate("\n")
