"""A dcgm-exporter as a source: read when it can be, never waited for, and never shown when it is old."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from trees import points

from gpu.fake_dcgm_exporter import FakeDcgmExporter, Line, fake_dcgm_exporter, page, recorded, uuid
from tachoscope_core.metrics.gpu import GPU_ENERGY, GPU_INFO, GPU_POWER, GPU_UP, GPUS
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.collectors.frame import Frame
from tachoscope_node.gpu.dcgm import collector as dcgm
from tachoscope_node.gpu.dcgm.collector import STALE_SECONDS, DcgmCollector, DcgmError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDcgmExporter]:
    monkeypatch.setattr(dcgm, "ANSWER_SECONDS", 60.0)  # on a crowded machine even this one takes its time
    with fake_dcgm_exporter(recorded("l4")) as fake:
        yield fake


def xid(code: int | None, gpu: int = 0) -> str:
    return page([Line(gpu, {"DCGM_FI_DEV_GPU_UTIL": 0, **({} if code is None else {"DCGM_FI_DEV_XID_ERRORS": code})})])


def test_what_the_exporter_says_is_there_for_the_collector_nvml_and_not_given_twice(exporter: FakeDcgmExporter) -> None:
    collector = DcgmCollector(exporter.url)

    assert (collector.collect(), collector.metrics) == ([], ())
    (reading,) = collector.readings()
    assert reading.value(GPU_POWER, "usage") == 16.365


def test_where_nvml_is_off_the_collector_gives_the_metrics_itself(exporter: FakeDcgmExporter) -> None:
    collector = DcgmCollector(exporter.url, alone=True)
    frame = Frame([collector], lambda _: None)
    frame.tick(0.0)

    labels = ("0", "GPU-11111111-2222-3333-4444-555555555555", "")
    assert points(frame.families(), GPU_UP) == {labels: 1.0}
    assert points(frame.families(), GPU_ENERGY) == {labels: 4742.776}
    assert points(frame.families(), GPU_INFO) == {(*labels, "NVIDIA L4", "00000000:31:00.0", "580.105.08", ""): 1.0}
    frame.close()


def test_a_gpu_that_the_exporter_no_longer_tells_of_is_down_also_after_a_restart(
    exporter: FakeDcgmExporter, tmp_path: Path
) -> None:
    exporter.page = page(Line(gpu, {"DCGM_FI_DEV_GPU_UTIL": 5}) for gpu in range(3))
    DcgmCollector(exporter.url, alone=True, state=tmp_path / "gpus.json").collect()

    exporter.page = page(Line(gpu, {"DCGM_FI_DEV_GPU_UTIL": 5}) for gpu in (0, 2))
    collector = DcgmCollector(exporter.url, alone=True, state=tmp_path / "gpus.json")
    families = collector.collect()

    assert points(families, GPU_UP) == {(str(gpu), uuid(gpu), ""): float(gpu != 1) for gpu in range(3)}
    assert points(families, GPUS) == {("expected",): 3.0, ("seen",): 2.0}
    (lost,) = [reading for reading in collector.readings() if not reading.up]
    assert (lost.gpu.uuid, lost.fault, lost.source) == (uuid(1), "lost", "dcgm")


@pytest.mark.parametrize("fault", FakeDcgmExporter.FAULTS)
def test_an_exporter_that_misbehaves_fails_alone_and_is_not_shown_as_it_was_before(
    exporter: FakeDcgmExporter, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    collector = DcgmCollector(exporter.url, alone=True)
    frame = Frame([collector], lines.append, deadline_seconds=120.0)
    frame.tick(0.0)
    assert points(frame.families(), GPU_UP)

    exporter.fault = fault
    if fault in ("hang", "drip", "drip_head"):
        monkeypatch.setattr(dcgm, "ANSWER_SECONDS", 0.3)
    if fault == "break_off":
        exporter.page *= 2  # more than one chunk
    frame.tick(100.0)

    assert points(frame.families(), GPU_UP) == {}
    assert collector.readings() == ()
    (line,) = lines
    assert line.startswith(f"collector dcgm: failed: DcgmError: {exporter.url}: ")
    assert line.endswith("is gpu.dcgm_url the page of a running dcgm-exporter?")

    exporter.fault, exporter.page = "", recorded("l4")
    monkeypatch.setattr(dcgm, "ANSWER_SECONDS", 60.0)
    frame.tick(200.0)
    assert points(frame.families(), GPU_UP)
    frame.close()


def test_time_and_size_are_within_what_the_frame_and_a_node_allow() -> None:
    assert dcgm.ANSWER_SECONDS < 1.0
    divided = [Line(gpu, dict.fromkeys(map(str, range(40)), 1), instance=str(mig)) for gpu in range(8) for mig in range(7)]
    assert 4 * len(page(divided)) < dcgm.MOST_BYTES


def test_an_exporter_that_is_gone_fails_and_comes_back_where_it_was() -> None:
    with fake_dcgm_exporter(recorded("l4")) as fake:
        collector = DcgmCollector(fake.url)
        collector.collect()
    with pytest.raises(DcgmError, match="Connection refused"):
        collector.collect()
    assert collector.readings() == ()


def test_an_exporter_without_gpus_has_no_data_which_is_no_failure(exporter: FakeDcgmExporter) -> None:
    exporter.page = ""

    with pytest.raises(NoDataError, match="reports no GPU"):
        DcgmCollector(exporter.url).collect()


def test_a_service_that_leads_to_another_node_now_and_then_is_refused(exporter: FakeDcgmExporter) -> None:
    collector = DcgmCollector(exporter.url)
    collector.collect()

    exporter.page = recorded("rtx4000_pod")
    with pytest.raises(DcgmError, match="other GPUs than before: name the exporter of this node"):
        collector.collect()
    assert collector.readings() == ()


def test_readings_grow_too_old_where_the_collector_is_not_run_any_more(exporter: FakeDcgmExporter) -> None:
    clock = Clock()
    collector = DcgmCollector(exporter.url, clock=clock)
    collector.collect()

    clock.now += STALE_SECONDS
    assert collector.readings()
    clock.now += 1.0
    assert collector.readings() == ()


def test_readings_are_as_old_as_what_the_page_says_and_not_as_the_last_look_at_it(exporter: FakeDcgmExporter) -> None:
    clock = Clock()
    collector = DcgmCollector(exporter.url, clock=clock)
    said: list[float] = []
    for look in range(6):  # the exporter itself looks at every other one
        exporter.page = page(
            Line(gpu, {"DCGM_FI_DEV_GPU_UTIL": gpu * look // 2, "DCGM_FI_DEV_POWER_USAGE": 50}) for gpu in range(2)
        )
        exporter.fault = "error" if look == 3 else ""
        with contextlib.suppress(DcgmError):
            collector.collect()
            (at,) = {reading.at for reading in collector.readings()}
            said.append(at)
        clock.now += 15.0

    assert said == [1000.0, 1000.0, 1030.0, 1060.0, 1060.0], "a failed look between does not make it new"


def test_a_new_last_xid_is_told_once_and_one_from_before_the_agent_is_not(exporter: FakeDcgmExporter) -> None:
    told: list[tuple[str, int, float, str]] = []
    clock = Clock()
    collector = DcgmCollector(exporter.url, on_xid=lambda *event: told.append(event), unix_clock=clock)

    for code in (31, 31, 79, 79, 0, 79, None, 79, 13):
        exporter.page = xid(code)
        clock.now += 15.0
        collector.collect()

    assert told == [
        (uuid(0), 79, 1045.0, "dcgm"),
        (uuid(0), 79, 1090.0, "dcgm"),
        (uuid(0), 79, 1120.0, "dcgm"),
        (uuid(0), 13, 1135.0, "dcgm"),
    ]


def test_an_xid_that_comes_while_the_exporter_does_not_answer_is_told_afterwards(exporter: FakeDcgmExporter) -> None:
    told: list[int] = []
    collector = DcgmCollector(exporter.url, on_xid=lambda _, code, *__: told.append(code))
    exporter.page = xid(None)
    collector.collect()

    exporter.page, exporter.fault = xid(79), "error"
    with pytest.raises(DcgmError):
        collector.collect()
    exporter.fault = ""
    collector.collect()

    assert told == [79]


def test_an_error_of_all_instances_of_a_gpu_is_one(exporter: FakeDcgmExporter) -> None:
    told: list[tuple[str, int]] = []
    collector = DcgmCollector(exporter.url, on_xid=lambda gpu, code, *_: told.append((gpu, code)))
    for code in (0, 94):
        exporter.page = page(Line(0, {"DCGM_FI_DEV_XID_ERRORS": code}, instance=str(number)) for number in (1, 2, 3))
        collector.collect()

    assert told == [(uuid(0), 94)]
