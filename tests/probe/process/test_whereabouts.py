"""The GPU and the pod of a process, from what torch, the environment and /proc say of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tachoscope.process.identity import Identity
from tachoscope.process.placement import gpu_uuid, pod_uid
from tachoscope.training.probe import Probe
from tachoscope_core.records import records
from tachoscope_core.storage import spool
from trying import each

BARE = "6c1d0a11-1111-2222-3333-444444444444"
OTHER = "7d2e1b22-5555-6666-7777-888888888888"
POD = "a9c80282-3f6b-4d5b-84d5-a137a6668011"


class CUuuid:
    """Written by torch 2.5 to 2.13 as bare digits; no text by itself."""

    def __init__(self, digits: str) -> None:
        self._digits = digits

    def __str__(self) -> str:
        return self._digits


def fake_torch(*uuids: str | None, current: int = 0) -> Any:
    """A torch whose CUDA devices have these UUIDs; None: of a version that does not tell."""

    def properties(index: int) -> SimpleNamespace:
        found = uuids[index]
        return SimpleNamespace(name="fake") if found is None else SimpleNamespace(name="fake", uuid=CUuuid(found))

    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        current_device=lambda: current, get_device_name=lambda _: "NVIDIA H100 80GB HBM3", get_device_properties=properties
    )
    return torch


@each(
    ("torch", "environ", "uuid"),
    [
        (fake_torch(BARE), {}, f"GPU-{BARE}"),
        (fake_torch(BARE, OTHER, current=1), {}, f"GPU-{OTHER}"),
        (fake_torch(f"GPU-{BARE}"), {}, f"GPU-{BARE}"),
        (fake_torch(BARE.upper()), {}, f"GPU-{BARE}"),
        (fake_torch(BARE, OTHER, current=1), {"CUDA_VISIBLE_DEVICES": "3,1"}, f"GPU-{OTHER}"),
        (fake_torch(BARE), {"CUDA_VISIBLE_DEVICES": BARE[:8]}, f"GPU-{BARE}"),
        (fake_torch(BARE), {"NVIDIA_VISIBLE_DEVICES": "all"}, f"GPU-{BARE}"),
        # A MIG instance, whether torch names it or the whole GPU that it is of.
        (fake_torch(OTHER), {"CUDA_VISIBLE_DEVICES": f"MIG-{BARE}"}, f"MIG-{BARE}"),
        (fake_torch(OTHER), {"CUDA_VISIBLE_DEVICES": f"MIG-GPU-{OTHER}/3/0"}, f"MIG-GPU-{OTHER}/3/0"),
        (fake_torch(OTHER), {"CUDA_VISIBLE_DEVICES": f"MIG-{BARE},MIG-{OTHER}"}, f"MIG-{BARE}"),
        (fake_torch(OTHER), {"NVIDIA_VISIBLE_DEVICES": f"MIG-{BARE}"}, f"MIG-{BARE}"),
        (fake_torch(BARE), {"NVIDIA_VISIBLE_DEVICES": f"MIG-{OTHER},MIG-{BARE}"}, f"MIG-{BARE}"),
        (fake_torch(OTHER), {"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": f"MIG-{BARE}"}, f"GPU-{OTHER}"),
        # A torch that knows no UUIDs.
        (fake_torch(None), {"CUDA_VISIBLE_DEVICES": f"GPU-{BARE}"}, f"GPU-{BARE}"),
        (fake_torch(None, None, current=1), {"CUDA_VISIBLE_DEVICES": f"GPU-{BARE}, GPU-{OTHER}"}, f"GPU-{OTHER}"),
        (fake_torch(None), {"NVIDIA_VISIBLE_DEVICES": f"GPU-{BARE}"}, f"GPU-{BARE}"),
        (fake_torch(None), {"CUDA_VISIBLE_DEVICES": BARE[:8]}, ""),
        (fake_torch(None), {"CUDA_VISIBLE_DEVICES": "0"}, ""),
        (fake_torch(None), {"NVIDIA_VISIBLE_DEVICES": f"GPU-{BARE},GPU-{OTHER}"}, ""),
        (fake_torch("nonsense"), {}, ""),
        (fake_torch(None), {}, ""),
    ],
)
def test_the_gpu_is_named_as_the_driver_names_it_or_not_at_all(torch: Any, environ: dict[str, str], uuid: str) -> None:
    assert gpu_uuid(torch, environ) == uuid


def test_the_record_of_a_process_on_a_gpu_names_gpu_and_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_torch(OTHER, BARE, current=1)
    fake.cuda.is_initialized = lambda: True
    fake.cuda.current_stream = fake.cuda.is_current_stream_capturing = bool
    fake.get_num_threads = lambda: 1
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setenv("POD_UID", POD)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(Probe, "_set_hooks", lambda _: None)
    probe = Probe()
    probe.open(Identity("job", 0, "node-1"), tmp_path)
    probe.machine.backward_begin()
    probe.close()
    (segment,) = spool.segments(tmp_path)
    started = records.decode(segment.read_bytes().splitlines()[0])

    assert isinstance(started, records.JobStarted)
    assert (started.device, started.gpu_uuid, started.pod_uid) == ("cuda", f"GPU-{BARE}", POD)
    assert started.device_name == "NVIDIA H100 80GB HBM3"


def proc(root: Path, **files: str) -> str:
    (root / "self").mkdir()
    for name, content in files.items():
        (root / "self" / name).write_text(content)
    return str(root)


MOUNTS = (
    "1201 1188 0:512 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/containerd/x\n"
    "1210 1201 259:1 /var/lib/kubelet/pods/{}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/root rw\n"
    "1211 1201 259:1 /var/lib/kubelet/pods/{}/containers/main/0a1b /dev/termination-log rw,relatime - ext4 /dev/root rw\n"
)


@pytest.mark.parametrize(
    ("files", "environ"),
    [
        ({}, {"POD_UID": POD}),
        ({"cgroup": f"0::/kubepods/burstable/pod{POD}/0123\n"}, {}),
        ({"cgroup": f"5:cpu:/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/crio-0123.scope\n0::/\n"}, {}),
        ({"cgroup": "0::/\n", "mountinfo": MOUNTS.format(POD, POD)}, {}),
        ({"mountinfo": f"9 1 259:1 /kubelet/pods/{POD}/etc-hosts /etc/hosts rw - xfs /dev/nvme1n1 rw\n"}, {"POD_UID": "train-0"}),
    ],
)
def test_the_pod_is_known_from_the_environment_or_from_what_the_kubelet_made(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str]
) -> None:
    assert pod_uid(environ, proc(tmp_path, **files)) == POD


def test_outside_of_a_pod_there_is_none(tmp_path: Path) -> None:
    nothing = {"cgroup": "0::/user.slice/session-1.scope\n", "mountinfo": "21 1 259:1 / / rw - ext4 /dev/root rw\n"}

    assert pod_uid({}, proc(tmp_path, **nothing)) == ""
    assert pod_uid({"POD_UID": "$(POD_UID)"}, str(tmp_path / "nothing")) == ""
