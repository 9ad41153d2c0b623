"""Each name under which a GPU is handed out leads to that GPU, and no name to another."""

from __future__ import annotations

from pathlib import Path

from trees import plant

from tachoscope_node.gpu.reading import Gpu
from tachoscope_node.gpu.workloads.device_ids import Devices, key, minors
from trying import each

UUIDS = [f"6c1d0a1{number}-1111-2222-3333-444444444444" for number in range(8)]
WHOLE = Gpu(0, f"GPU-{UUIDS[0]}", pci_bus_id="00000000:17:00.0")
SPLIT = Gpu(1, f"GPU-{UUIDS[1]}", pci_bus_id="00000000:65:00.0")
SLICES = [
    Gpu(1, f"MIG-{UUIDS[2 + number]}", mig=str(instance), parent_uuid=SPLIT.uuid, mig_profile=profile)
    for number, (instance, profile) in enumerate([(7, "1g.10gb"), (9, "1g.10gb"), (1, "3g.40gb"), (4, "1g.10gb+me")])
]
MINORS = {"0000:17:00": "3", "0000:65:00": "0"}
"""The driver's order is not that of the minor numbers."""


def devices() -> Devices:
    return Devices([WHOLE, SPLIT, *SLICES], lambda: MINORS)


@each(
    ("name", "gpu"),
    [
        (f"GPU-{UUIDS[0]}", WHOLE),
        (f"GPU-{UUIDS[0]}".upper(), WHOLE),
        (UUIDS[0], WHOLE),
        (f"GPU-{UUIDS[0]}::3", WHOLE),
        (f"GPU-{UUIDS[0]}::12", WHOLE),
        (f"GPU-{UUIDS[1]}", SPLIT),
        (f"MIG-{UUIDS[2]}", SLICES[0]),
        (f"MIG-{UUIDS[3]}::1", SLICES[1]),
        (f"MIG-GPU-{UUIDS[1]}/9/0", SLICES[1]),
        (f"MIG-GPU-{UUIDS[1]}/1/0::2", SLICES[2]),
        ("nvidia3", WHOLE),
        ("nvidia0", SPLIT),
        ("nvidia3/vgpu1", WHOLE),
        ("nvidia0/gi9", SLICES[1]),
        ("nvidia0/gi1/vgpu0", SLICES[2]),
        ("gpu-3", WHOLE),
        ("gpu-0-mig-3g40gb-9-4", SLICES[2]),
        ("gpu-0-mig-1g10gb-me-20-1", SLICES[3]),
        # Of two instances of one profile, either could be meant.
        ("gpu-0-mig-1g10gb-19-4", None),
        ("gpu-7", None),
        ("nvidia1", None),
        ("nvidia0/gi3", None),
        (f"GPU-{UUIDS[7]}", None),
        (f"MIG-GPU-{UUIDS[0]}/9/0", None),
        (f"GPU-{UUIDS[0]}x", None),
        (f"GPU-{UUIDS[0][:8]}", None),
        ("", None),
        ("0", None),
    ],
)
def test_a_name_leads_to_its_gpu(name: str, gpu: Gpu | None) -> None:
    assert devices().find([name]) == gpu


def test_of_several_names_one_that_is_known_is_enough() -> None:
    assert devices().find(["card", f"GPU-{UUIDS[0]}"]) == WHOLE


def test_without_minor_numbers_names_by_them_lead_nowhere_and_the_others_still_do() -> None:
    without = Devices([WHOLE, SPLIT], dict)

    assert without.find(["nvidia0"]) is None
    assert without.find([f"GPU-{UUIDS[0]}"]) == WHOLE


def test_minor_numbers_are_looked_up_once_and_only_when_a_name_has_one() -> None:
    looked: list[int] = []

    def look() -> dict[str, str]:
        looked.append(1)
        return MINORS

    some = Devices([WHOLE], look)
    some.find([f"GPU-{UUIDS[0]}"])
    assert not looked
    assert [some.find(["nvidia3"]), some.find(["gpu-3"])] == [WHOLE, WHOLE]
    assert len(looked) == 1


def test_minor_numbers_are_those_of_the_kernel_driver(tmp_path: Path) -> None:
    information = "Model: \t\t NVIDIA H100 80GB HBM3\nBus Location: \t 0000:17:00.0\nDevice Minor: \t {}\nGPU Excluded:\t No\n"
    proc = plant(
        tmp_path,
        {
            "driver/nvidia/gpus/0000:17:00.0/information": information.format(12),
            "driver/nvidia/gpus/0000:AB:00.0/information": information.format(0),
            "driver/nvidia/gpus/0000:ff:00.0/information": "Model: \t\t Unknown\n",
        },
    )

    assert minors(proc) == {"0000:17:00": "12", "0000:ab:00": "0"}
    assert minors(str(tmp_path / "nothing")) == {}


def test_cudas_own_way_to_write_a_uuid_is_the_same_name() -> None:
    assert key(UUIDS[0]) == key(f"GPU-{UUIDS[0]}") == key(f"MIG-{UUIDS[0]}")
