"""The page Trace, run without a browser on planted traces."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from exploring import open_page, words
from planting import Planted
from planting_ranks import EPOCH, Group, PlantedJob
from tachoscope_explorer.page.settings import Settings

MS = 1_000_000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))


def opened(folder: Path, *traces: Path, **parameters: str) -> AppTest:
    given = tuple(str(path) for path in traces or (folder,))
    shown = open_page("trace", folder, started=Settings(str(folder / "store"), traces=given), **parameters)
    assert not shown.exception, shown.exception[0].message
    return shown


def figures(shown: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in shown.get("plotly_chart")]


def choices(shown: AppTest, label: str) -> Any:
    return next(box for box in shown.selectbox if box.label == label)


def job(ranks: int, **more: Any) -> PlantedJob:
    return PlantedJob(ranks, [Group("0", range(ranks), "dp")], steps=3, **more)


def one_rank() -> Planted:
    return job(2).traces()[0]


def tables(shown: AppTest) -> list[list[str]]:
    return [list(frame.value.columns) for frame in shown.dataframe]


def test_without_a_trace_the_page_says_how_to_get_one(tmp_path: Path) -> None:
    shown = open_page("trace", tmp_path / "store")

    assert not shown.exception
    assert "store add-traces" in words(shown)


def test_a_job_without_traces_says_so(tmp_path: Path) -> None:
    shown = open_page("trace", tmp_path / "store", job="nowhere")

    assert not shown.exception
    assert "No trace of nowhere was found" in words(shown)


def test_one_rank_shows_its_device_streams_and_threads_with_its_steps(tmp_path: Path) -> None:
    path = one_rank().write(tmp_path / "one.json")

    shown = opened(tmp_path, path)

    overview = figures(shown)[0]
    assert overview["layout"]["yaxis"]["ticktext"] == ["device 0", "stream 7", "stream 20", "thread 100", "thread 101"]
    assert [mark["text"] for mark in overview["layout"]["annotations"]] == ["step 0", "1", "2"]
    assert "Rank 0 of 2" in words(shown)


def test_many_ranks_have_a_row_each_and_only_some_cells(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    job(64).write(folder)

    shown = opened(tmp_path, folder)

    overview = figures(shown)[0]
    assert overview["layout"]["yaxis"]["ticktext"] == [f"rank {rank}" for rank in range(64)]
    bars = [trace for trace in overview["data"] if trace["type"] == "heatmap"]
    assert sum(int(bar["z"]["shape"].split(",")[1]) for bar in bars) <= 20_000
    assert sum(len(chart.proto.spec) for chart in shown.get("plotly_chart")) < 1_000_000
    assert choices(shown, "Rank").value == "all"


def test_of_a_thousand_files_a_sample_is_read_with_the_rank_of_the_address(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(1000):
        planted = Planted(rank, 1000)
        planted.kernel("k", EPOCH + rank, 5_000)
        planted.write(folder / f"rank-{rank:04}.json")

    shown = opened(tmp_path, folder, rank="613")

    assert "64 of 1000 ranks" in words(shown)
    assert "Rank 613 of 1000" in words(shown)
    assert len(choices(shown, "Rank").options) == 65


def test_of_many_ranks_those_that_stand_out_are_found_when_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(70):
        planted = Planted(rank, 70)
        planted.kernel("k", EPOCH, 100 if rank == 33 else 90_000 - rank)
        planted.kernel("k", EPOCH + 100_000, 1_000)
        planted.write(folder / f"rank-{rank:04}.json")
    shown = opened(tmp_path, folder)
    assert "64 of 70 ranks are shown, evenly spaced" in words(shown)

    shown.toggle[0].set_value(True).run()

    assert "the 32 that compute least or most" in words(shown)
    assert "rank 33" in figures(shown)[0]["layout"]["yaxis"]["ticktext"]


def test_a_rank_that_is_not_there_is_said_and_all_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    job(2).write(folder)

    shown = opened(tmp_path, folder, rank="7")

    assert "No trace of rank 7 was found, only of 0, 1" in words(shown)
    assert figures(shown)[0]["layout"]["yaxis"]["ticktext"] == ["rank 0", "rank 1"]


def test_a_damaged_file_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    job(3).write(folder)
    (folder / "broken.json.gz").write_bytes(gzip.compress(b"no trace at all"))

    shown = opened(tmp_path, folder)

    assert "1 of 4 files cannot be read" in words(shown)
    assert "broken" in words(shown)
    assert len(figures(shown)[0]["layout"]["yaxis"]["ticktext"]) == 3


def test_only_a_damaged_file_leaves_a_page_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(b"{}")

    shown = opened(tmp_path, path)

    assert "cannot be read" in words(shown)
    assert not shown.get("plotly_chart")


def test_a_window_of_the_address_is_drawn_event_by_event(tmp_path: Path) -> None:
    path = one_rank().write(tmp_path / "one.json")
    begin = EPOCH / 1e6

    shown = opened(tmp_path, path, from_=f"{begin:.3f}", to=f"{begin + 0.05:.3f}")

    closer = figures(shown)[1]
    names = [name for trace in closer["data"] for name in trace["hovertext"]]
    assert sorted(names) == ["ProfilerStep#0", "aten::mm", "cudaLaunchKernel", "sgemm_tn"]
    assert [box.value for box in shown.number_input] == [0.0, pytest.approx(0.05)]


def test_a_window_that_is_typed_becomes_that_of_the_address_and_all_is_shown_again(tmp_path: Path) -> None:
    shown = opened(tmp_path, one_rank().write(tmp_path / "one.json"))

    shown.number_input[1].set_value(1.5).run()

    assert not shown.exception
    assert shown.query_params["to"] == f"{EPOCH // MS + 1.5:.1f}"
    assert len(figures(shown)) > 1
    next(button for button in shown.button if button.label == "Whole recording").click().run()
    assert "to" not in shown.query_params


def test_a_window_outside_the_recording_is_said_and_all_is_shown(tmp_path: Path) -> None:
    shown = opened(tmp_path, one_rank().write(tmp_path / "one.json"), from_="1000", to="2000")

    assert "outside this recording" in words(shown)
    assert figures(shown)[0]["layout"]["yaxis"]["ticktext"]


def test_ranks_whose_clocks_share_no_time_begin_together(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    job(2, offsets={1: 3_600 * 10**9}).write(folder)

    shown = opened(tmp_path, folder)

    assert "cannot be compared" in words(shown)
    assert figures(shown)[0]["layout"]["xaxis"]["range"][1] < 60


def test_script_names_are_text_everywhere(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    planted = Planted()
    planted.step(0, EPOCH, 2 * MS)
    planted.op(name, EPOCH, MS)
    planted.kernel(name, EPOCH + 50_000, MS, launched=EPOCH + 10_000)
    planted.events.append(json.dumps({"ph": "M", "name": "thread_name", "pid": 100, "tid": 100, "ts": 0, "args": {"name": name}}))
    path = planted.write(tmp_path / "script.json")
    for part in ("operators", "kernels", "collectives"):
        shown = opened(tmp_path, path, part=part, to=f"{EPOCH / 1e6 + 1:.3f}")

        sent = "".join(chart.proto.spec for chart in shown.get("plotly_chart"))
        assert "<script" not in sent
        assert "script" in sent
        assert "<script>" not in words(shown)


@pytest.mark.parametrize(
    ("part", "column"),
    [
        ("operators", "self device, ms"),
        ("kernels", "class"),
        ("idle", "cause"),
        ("path", "category"),
        ("queue", "queued max"),
        ("memory", None),
        ("collectives", "wait, ms"),
    ],
)
def test_each_part_is_worked_out_when_it_is_open_and_no_other(tmp_path: Path, part: str, column: str | None) -> None:
    folder = tmp_path / "traces"
    job(2).write(folder)

    shown = opened(tmp_path, folder, rank="1", part=part)

    found = {name for columns in tables(shown) for name in columns}
    known = {"self device, ms", "class", "cause", "category", "queued max", "wait, ms"}
    assert found & known == ({column} if column else set())


def test_a_part_that_is_of_one_rank_offers_the_ranks_where_none_is_chosen(tmp_path: Path) -> None:
    job(3).write(tmp_path / "traces")
    shown = opened(tmp_path, tmp_path / "traces", part="kernels")
    offered = next(group for group in shown.button_group if group.options == ["0", "1", "2"])

    offered.set_value(2).run()

    assert [shown.query_params[name] for name in ("rank", "part")] == ["2", "kernels"]


def test_the_late_rank_is_named_beside_what_the_others_wait(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    PlantedJob(4, [Group("0", range(4), "dp")], steps=6, late={2: 4 * MS}).write(folder)

    shown = opened(tmp_path, folder, part="collectives")

    assert re.search(r"Rank 2 comes late in dp: the others wait [34]\.\d+ ms a step", words(shown))


def test_a_trace_without_device_says_so_in_each_part(tmp_path: Path) -> None:
    planted = Planted()
    for step in range(3):
        planted.step(step, EPOCH + step * MS, MS)
        planted.op("aten::mm", EPOCH + step * MS, 900_000)
    path = planted.write(tmp_path / "cpu.json")
    assert "No work of a device is in this trace" in words(opened(tmp_path, path, part="queue"))
    assert "profile_memory=True" in words(opened(tmp_path, path, part="memory"))
    shown = opened(tmp_path, path, part="collectives")
    assert "No collectives" in words(shown)
    assert figures(shown)[0]["layout"]["yaxis"]["ticktext"][0] == "host"


def test_an_empty_trace_is_said_to_be_empty(tmp_path: Path) -> None:
    path = Planted().write(tmp_path / "empty.json")

    assert "no event" in words(opened(tmp_path, path))
    for part in ("operators", "path", "memory"):
        opened(tmp_path, path, part=part)


def test_the_findings_of_a_recording_are_told_with_what_was_not_measured(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    PlantedJob(4, [Group("0", range(4), "dp")], steps=6, late={2: 4 * MS}).write(folder)

    shown = opened(tmp_path, folder)

    assert "rank 2" in words(shown)
    assert any("neither found nor ruled out" in box.label for box in shown.expander)
