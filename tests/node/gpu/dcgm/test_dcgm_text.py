"""A dcgm-exporter's page becomes readings in our names and units; what it does not know stays unknown."""

from __future__ import annotations

import pytest

from gpu.fake_dcgm_exporter import Line, page, recorded, uuid
from tachoscope_core.metrics.dcgm import DCGM_BY_NAME
from tachoscope_core.metrics.gpu import (
    GPU_ACTIVE,
    GPU_CLOCK,
    GPU_ENERGY,
    GPU_LINK_RATE,
    GPU_MEMORY_BYTES,
    GPU_POWER,
    GPU_REMAPPED_ROWS,
    GPU_ROW_REMAP,
    GPU_TEMPERATURE,
    GPU_TEMPERATURE_MARGIN,
    GPU_THROTTLED,
    GPU_THROTTLED_SECONDS,
    GPU_UTILIZATION,
    THROTTLE_REASONS,
)
from tachoscope_node.gpu.dcgm.fields import FIELDS
from tachoscope_node.gpu.dcgm.parser import MOST_GPUS, NotDcgmError, read
from tachoscope_node.gpu.reading import Gpu, Reading
from trying import each

MIB = 1024**2


def one(text: str) -> Reading:
    (reading,) = read(text).readings
    return reading


def test_the_page_of_a_real_l4_becomes_what_that_gpu_was() -> None:
    reading = one(recorded("l4"))

    assert reading.gpu == Gpu(
        0,
        "GPU-11111111-2222-3333-4444-555555555555",
        model="NVIDIA L4",
        pci_bus_id="00000000:31:00.0",
        driver_version="580.105.08",
    )
    assert (reading.up, reading.source, reading.processes) == (True, "dcgm", None)
    assert reading.value(GPU_CLOCK, "sm", "current") == 210e6
    assert reading.value(GPU_CLOCK, "memory", "current") == 405e6
    assert reading.value(GPU_POWER, "usage") == 16.365
    assert reading.value(GPU_ENERGY) == 4742.776
    assert reading.value(GPU_TEMPERATURE, "gpu") == 31.0
    assert reading.value(GPU_TEMPERATURE, "memory") is None  # it has no such sensor, and the exporter says 0
    assert reading.value(GPU_MEMORY_BYTES, "free") == 22563 * MIB
    assert reading.value(GPU_MEMORY_BYTES, "used") == 0.0
    assert reading.value(GPU_MEMORY_BYTES, "total") is None
    assert reading.value(GPU_ACTIVE, "tensor") == 0.0
    assert reading.value(GPU_ACTIVE, "sm") is None  # not among what an exporter collects by default
    assert reading.value(GPU_LINK_RATE, "pcie", "transmit") == 112603.0
    assert reading.value(GPU_REMAPPED_ROWS, "corrected") == 0.0
    assert reading.value(GPU_ROW_REMAP, "failed") == 0.0


def test_a_page_with_pods_is_read_as_one_without() -> None:
    said = read(recorded("rtx4000_pod"))

    (reading,) = said.readings
    assert reading.value(GPU_ACTIVE, "graphics") == 0.004656
    assert reading.value(GPU_ENERGY) == 455497.156
    assert said.xids == {"GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee": {0}}


def test_what_only_the_whole_gpu_has_is_not_said_again_by_its_instances() -> None:
    readings = read(recorded("a30_mig")).readings

    assert [(reading.gpu.index, reading.gpu.mig) for reading in readings] == [
        (index, mig) for index in (2, 3) for mig in ("", "3", "4", "5", "6")
    ]
    assert sum(reading.value(GPU_POWER, "usage") or 0.0 for reading in readings) == 71.25 + 60.5
    for reading in readings:
        whole = not reading.gpu.mig
        assert (reading.value(GPU_TEMPERATURE, "gpu") is not None) is whole
        assert reading.value(GPU_MEMORY_BYTES, "used") == (None if whole else 100 * int(reading.gpu.mig) * MIB)
        assert reading.value(GPU_ACTIVE, "graphics") == (None if whole else pytest.approx(int(reading.gpu.mig) / 10))
        assert reading.gpu.mig_profile == ("" if whole else "1g.6gb")
        assert reading.gpu.uuid == (f"GPU-33333333-0000-0000-0000-00000000000{reading.gpu.index}" if whole else "")
        assert reading.gpu.parent_uuid == ("" if whole else f"GPU-33333333-0000-0000-0000-00000000000{reading.gpu.index}")
    energies = {reading.gpu.index: reading.value(GPU_ENERGY) for reading in readings if not reading.gpu.mig}
    assert energies == {2: 138249198.597, 3: 135188279.787}  # the largest of its copies: a counter must not go back


def test_the_gpus_own_line_wins_over_those_of_its_instances() -> None:
    lines = [Line(0, {"DCGM_FI_DEV_POWER_USAGE": 80}), Line(0, {"DCGM_FI_DEV_POWER_USAGE": 90}, instance="1")]

    whole, instance = read(page(lines)).readings

    assert (whole.value(GPU_POWER, "usage"), instance.value(GPU_POWER, "usage")) == (80.0, None)


def test_of_a_shared_gpu_its_own_value_is_read_and_not_that_of_a_pod() -> None:
    own = Line(0, {"DCGM_FI_DEV_GPU_UTIL": 75})
    pods = [Line(0, {"DCGM_FI_DEV_GPU_UTIL": use}, extra={"pod": f"p{use}", "vgpu": "0"}) for use in (25, 90)]

    assert one(page([pods[0], own, pods[1]])).value(GPU_UTILIZATION) == 0.75


@pytest.mark.parametrize("hostname", ["Hostname", "hostname"])
def test_either_way_to_write_the_host_name_is_read(hostname: str) -> None:
    assert one(page([Line(3, {"DCGM_FI_DEV_GPU_UTIL": 50}, hostname=hostname)])).value(GPU_UTILIZATION) == 0.5


@each(
    "blank",
    [
        *(str(0x7FFFFFFFFFFFFFF0 + kind) for kind in range(4)),
        *(str(0x7FFFFFF0 + kind) for kind in range(4)),
        *(f"{2**47 + kind}.000000" for kind in range(4)),
        "NaN",
        "+Inf",
        "-1",
        "ERROR - FAILED TO CONVERT TO STRING",
        "",
    ],
)
def test_a_blank_is_no_value(blank: str) -> None:
    values = {"DCGM_FI_DEV_FB_USED": blank, "DCGM_FI_DEV_POWER_USAGE": blank, "DCGM_FI_DEV_XID_ERRORS": blank}
    said = read(page([Line(0, {"DCGM_FI_DEV_SM_CLOCK": 1980, **values})]))

    (reading,) = said.readings
    assert reading.values == {GPU_CLOCK.name: {("sm", "current"): 1980e6}}
    assert said.xids == {}


@each(("said", "value"), [("0", 0.0), ("97", 0.97), ("100", 1.0), ("101", 1.0), ("140", None)])
def test_a_share_is_never_more_than_everything(said: str, value: float | None) -> None:
    assert one(page([Line(0, {"DCGM_FI_DEV_GPU_UTIL": said})])).value(GPU_UTILIZATION) == value


def test_each_bit_of_the_reasons_is_a_series() -> None:
    reading = one(page([Line(0, {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0x24})]))

    assert {reason for reason in THROTTLE_REASONS if reading.value(GPU_THROTTLED, reason)} == {"power_cap", "thermal"}
    assert set(reading.values[GPU_THROTTLED.name]) == {(reason,) for reason in THROTTLE_REASONS}


def test_a_gpu_beyond_its_slowdown_temperature_has_a_negative_margin() -> None:
    assert one(page([Line(0, {"DCGM_FI_DEV_GPU_TEMP_LIMIT": -3})])).value(GPU_TEMPERATURE_MARGIN, "gpu") == -3.0


def test_of_two_fields_for_the_same_the_first_of_the_table_is_read() -> None:
    limits = {"DCGM_FI_DEV_POWER_MGMT_LIMIT": 700, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 500}

    assert one(page([Line(0, limits)])).value(GPU_POWER, "limit") == 500.0
    assert one(page([Line(0, {"DCGM_FI_DEV_POWER_MGMT_LIMIT": 700})])).value(GPU_POWER, "limit") == 700.0


@each("field", [field for field in FIELDS if not field.sum and not field.bits])
def test_every_field_of_the_table_is_read_under_all_its_names_and_given_back_the_same(field: object) -> None:
    assert isinstance(field, type(FIELDS[0]))
    for name in (field.field, *field.also):
        reading = one(page([Line(0, {name: 1})]))
        ((metric, values),) = reading.values.items()
        assert (metric, list(values)) == (field.metric, [field.labels])
        assert field.to_dcgm(values[field.labels]) == pytest.approx(1.0)
        assert field.field in DCGM_BY_NAME


def test_times_are_in_nanoseconds_and_memory_in_mebibytes() -> None:
    reading = one(page([Line(0, {"DCGM_FI_DEV_POWER_VIOLATION": 2_500_000_000, "DCGM_FI_DEV_FB_TOTAL": 81559})]))

    assert reading.value(GPU_THROTTLED_SECONDS, "power_cap") == 2.5
    assert reading.value(GPU_MEMORY_BYTES, "total") == 81559 * MIB


def test_the_last_xid_of_each_gpu_is_told() -> None:
    lines = [
        Line(0, {"DCGM_FI_DEV_XID_ERRORS": 0}),
        Line(1, {"DCGM_FI_DEV_XID_ERRORS": 31}, instance="1"),
        Line(1, {"DCGM_FI_DEV_XID_ERRORS": 43}, instance="2"),
        Line(2, {"DCGM_FI_DEV_GPU_UTIL": 0}),
    ]
    said = read(page(lines))

    assert said.xids == {uuid(0): {0}, uuid(1): {31, 43}}
    assert [reading.gpu.index for reading in said.readings] == [0, 1, 1, 1, 2]


def test_lines_of_links_switches_and_processors_are_no_gpus() -> None:
    text = (
        'DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{nvlink="3",gpu="0",UUID="GPU-1"} 7\n'
        'DCGM_FI_DEV_GPU_TEMP{nvswitch="0",hostname="a"} 40\n'
        'DCGM_FI_DEV_CPU_TEMP_CURRENT{cpu="0",hostname="a"} 40\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="x",UUID="GPU-1"} 40\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1" 40\n'
    )

    assert read(text).readings == ()


def test_a_blank_text_is_no_name() -> None:
    line = Line(0, {"DCGM_FI_DEV_FB_USED": 1}, instance="6").sample("DCGM_FI_DEV_FB_USED").replace("1g.10gb", "<<<NULL>>>")

    _, instance = read(line).readings
    assert (instance.gpu.mig, instance.gpu.mig_profile) == ("6", "")


def test_the_uuid_of_an_instance_is_known_where_the_dra_driver_gave_it() -> None:
    extra = {"pod": "p", "dra_mig_device_uuid": "MIG-5"}
    _, instance = read(page([Line(0, {"DCGM_FI_DEV_FB_USED": 1}, instance="6", extra=extra)])).readings

    assert instance.gpu.uuid == "MIG-5"


@pytest.mark.parametrize("text", ["", "# HELP x y\n\n"])
def test_an_exporter_without_gpus_tells_of_none(text: str) -> None:
    assert read(text).readings == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>\n<body>", "the first line is '<html>'"),
        ('node_cpu_seconds_total{cpu="0"} 1\n', "not a dcgm-exporter's page"),
        (recorded("l4") + 'tachoscope_gpu_up{gpu="0"} 1\n', "the page of a tachoscope agent"),
        (
            "".join(Line(gpu, {"DCGM_FI_DEV_GPU_UTIL": 1}).sample("DCGM_FI_DEV_GPU_UTIL") for gpu in range(MOST_GPUS + 1)),
            "more than",
        ),
    ],
    ids=["html", "another exporter", "an agent", "too many GPUs"],
)
def test_a_page_of_something_else_is_refused_by_what_it_says(text: str, why: str) -> None:
    with pytest.raises(NotDcgmError, match=why):
        read(text)


MUCH = 1_000_000
"""Letters: in time that grows with the square of the page, one of these would take hours."""


@pytest.mark.parametrize(
    "noise",
    [
        bytes(range(256)).decode("latin-1") * 50,
        "DCGM_FI_DEV_GPU_UTIL{" * (MUCH // 20),
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{"9" * MUCH}"}} 1\n',
        f"DCGM_FI_DEV_GPU_UTIL{{{'a' * MUCH}}} 1\n",
        "DCGM_FI_DEV_GPU_UTIL{" + 'a="\\"' * (MUCH // 5) + "} 1\n",
        "DCGM_FI_DEV_GPU_UTIL{" + "}  " * (MUCH // 3) + "\n",
        "DCGM_FI_DEV_GPU_UTIL{} " + " " * MUCH + "\n",
        ("DCGM_FI_DEV_GPU_UTIL{" + "a" * 4000 + "}  \n") * (MUCH // 4000),
        ("DCGM_FI_DEV_GPU_UTIL{" + 'a="' * 1300 + "} 1\n") * (MUCH // 4000),
        "\n" * MUCH,
        " " * MUCH,
        "D" * MUCH,
    ],
    ids=range(12),
)
def test_a_page_of_noise_is_refused_or_tells_of_no_gpu(noise: str) -> None:
    try:
        assert read(noise).readings == ()
    except NotDcgmError as error:
        assert len(str(error)) < 200
