from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from course_making import late, lines, slower
from exploring import facts, open_page, words
from exploring_job import even, put
from life_making import killed_three_times
from making import envelope
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_store
from tachoscope_core.records import records
from tachoscope_core.report.report import SCHEMA, Report, dump
from tachoscope_core.storage.hang_bundles import HangBundle, ProcessEvidence, ThreadEvidence, write
from tachoscope_core.storage.store import Store
from tachoscope_explorer.sources import cache as sources

NAME = "planted"
T0 = 1.7e9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three ranks in whose second half rank 1 loads its data slowly, and one that got slower as a whole."""
    folder = tmp_path_factory.mktemp("store")
    put(folder, NAME, lines(late(1, 151, 300, 0.05), steps=300, ranks=3))
    put(folder, "slower", lines(slower(151), steps=300, ranks=2, name="slower"))
    return folder


@pytest.fixture(scope="module")
def report(store: Path) -> Report:
    return analyze(from_store(Store(str(store)), NAME))


def figures(test: AppTest) -> list[dict[str, Any]]:
    return [json.loads(one.proto.spec) for one in test.get("plotly_chart")]


def figure(test: AppTest, title: str) -> dict[str, Any]:
    """Return the figure whose vertical axis is named so."""
    return next(one for one in figures(test) if one["layout"]["yaxis"].get("title", {}).get("text") == title)


def milliseconds(unix: float) -> str:
    return str(round(unix * 1e3))


def test_the_verdict_comes_first_with_what_how_much_whose_and_what_to_do(store: Path) -> None:
    shown = open_page("job", store, job=NAME)

    told = words(shown)
    assert not shown.exception
    assert [one.value for one in shown.title] == [NAME]
    assert told.index("Rank 1 is late with the data: all ranks wait for ") < told.index('<table class="f-facts">')
    for part in (
        "input_straggler, rank 1",
        " of each step",
        "95 % interval",
        "very likely",
        "Runner-up",
        "If fixed",
        "data wait of the late rank",
    ):
        assert part in told
    assert "## " not in told.replace("##### ", "")


def test_the_ledger_is_drawn_from_at_most_two_hundred_bins_that_sum_to_the_whole(store: Path) -> None:
    shown = figure(open_page("job", store, job=NAME, part="zoom"), "% of the time")

    values = [_values(trace["y"])[:-1] for trace in shown["data"]]  # the last one is the end of the last bin
    assert {len(one) for one in values} == {200}
    assert [sum(column) for column in zip(*values, strict=True)] == pytest.approx([100.0] * 200, rel=0.01)


def test_the_first_view_has_states_and_ranks_without_a_figure(store: Path) -> None:
    shown = open_page("job", store, job=NAME)

    picture = base64.b64decode(re.findall(r"svg\+xml;base64,([^\"]+)", words(shown))[0]).decode()
    assert not figures(shown)
    assert picture.count("<path") == words(shown).count('<span class="key"')
    assert re.findall(r"<b>rank (\d)</b>", words(shown)) == ["1", "0", "2"], "the rank that a finding names is the first"


def _values(array: Any) -> list[float]:
    if isinstance(array, dict):
        return [float(value) for value in np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])]
    return list(array)


def test_a_window_in_the_address_is_followed_by_all_that_is_shown(store: Path, report: Report) -> None:
    half = report.window.start + 150 * 0.1

    first = open_page("job", store, job=NAME, to=milliseconds(half - 1))
    second = open_page("job", store, job=NAME, from_=milliseconds(half + 1))

    assert "input_straggler" not in "".join(line for line in words(first).splitlines() if "f-facts" in line)
    assert "input_straggler, rank 1" in words(second)
    assert "**Window**: steps 3 to" in words(first)
    assert sum(int(facts(shown)["Steps"]) for shown in (first, second)) < 298
    assert any(button.label == "Whole run" for button in first.button)


def test_the_button_leads_back_to_the_whole_run(store: Path, report: Report) -> None:
    shown = open_page("job", store, job=NAME, from_=milliseconds(report.window.start + 20))

    shown.button(key="whole-run").click().run()

    assert "from" not in shown.query_params
    assert facts(shown)["Steps"] == "298"


def test_the_slider_chooses_a_window_by_the_numbers_of_its_steps(store: Path) -> None:
    shown = open_page("job", store, job=NAME, part="zoom")

    shown.slider[0].set_range(100, 199).run()

    assert {"from", "to", "part"} <= set(shown.query_params)
    assert facts(shown)["Steps"] == "100"
    assert "**Window**: steps 100 to 199" in words(shown)


def test_a_window_that_holds_the_whole_run_is_no_window(store: Path) -> None:
    shown = open_page("job", store, job=NAME, from_="1", to=milliseconds(T0 + 1e6))

    assert "**Window**" not in words(shown)
    assert facts(shown)["Steps"] == "298"


def test_a_window_without_steps_says_so_and_leads_back(store: Path) -> None:
    shown = open_page("job", store, job=NAME, from_="1000", to="2000")

    assert "no step of job" in shown.error[0].value
    shown.button(key="whole-run").click().run()
    assert not shown.error


def test_a_lasting_change_is_told_and_marked(store: Path) -> None:
    shown = open_page("job", store, job="slower", part="steps")

    assert "from step 151" in words(open_page("job", store, job="slower"))
    course = figure(shown, "step time in ms")
    assert "<b>1</b>" in [one["text"] for one in course["layout"]["annotations"]]


def test_a_runbook_is_open_where_the_address_names_its_class(store: Path) -> None:
    closed, opened = (open_page("job", store, job=NAME, class_=class_) for class_ in ("", "input_straggler"))

    def expanded(shown: AppTest) -> list[bool]:
        return [one.proto.expanded for one in shown.expander if one.label.startswith("Runbook")]

    assert not any(expanded(closed))
    assert expanded(opened)[0]
    assert "##### Meaning" in words(opened)


def test_without_a_job_one_is_chosen_from_the_store(store: Path) -> None:
    shown = open_page("job", store)

    assert set(shown.selectbox[0].options) == {NAME, "slower"}
    shown.selectbox[0].select("slower").run()
    assert [one.value for one in shown.title] == ["slower"]


def test_an_empty_store_says_how_to_fill_it(tmp_path: Path) -> None:
    assert "tachoscope run" in open_page("job", tmp_path / "store").info[0].value


def test_a_job_that_the_store_does_not_have_is_an_error_and_no_traceback(store: Path) -> None:
    shown = open_page("job", store, job="gone")

    assert not shown.exception
    assert "has no job" in shown.error[0].value


@pytest.mark.parametrize("name", ["../../../etc", "<script>alert(1)</script>", "s3://elsewhere/jobs"])
def test_an_address_that_names_no_job_of_the_store_gets_nothing_from_elsewhere(store: Path, name: str) -> None:
    shown = open_page("job", store, job=name)

    assert not shown.exception
    assert "in the address is not a name" in words(shown)
    assert "<script>" not in words(shown)


def test_links_lead_on_with_the_job_its_rank_and_its_window(store: Path, report: Report) -> None:
    shown = open_page("job", store, job=NAME, from_=milliseconds(report.window.start + 20))

    links = {link.proto.label: link.proto for link in shown.get("page_link")}
    assert {"Its traces", "Compare it", "What if", "Rank 1 in the trace"} <= set(links)
    query = links["Rank 1 in the trace"].query_string
    assert f"job={NAME}" in query
    assert "rank=1" in query
    assert "from=" in query


def test_a_job_without_steps_says_so(tmp_path: Path) -> None:
    put(tmp_path, NAME, records.encode(records.JobStarted(**envelope(0), world_size=1, pid=1)))

    shown = open_page("job", tmp_path, job=NAME)

    assert not shown.exception
    assert "no training step" in shown.error[0].value


def test_a_service_leads_to_its_own_page(tmp_path: Path) -> None:
    put(tmp_path, "chat", records.encode(records.ServiceStarted(**envelope(0) | {"job": "chat"}, pid=1)))

    shown = open_page("job", tmp_path, job="chat")

    assert "This is a service" in shown.info[0].value
    assert any("inference" in str(link.proto.page) for link in shown.get("page_link"))


def test_one_rank_has_all_pictures(tmp_path: Path) -> None:
    put(tmp_path, NAME, even(1, 60))

    shown = {part: open_page("job", tmp_path, job=NAME, part=part) for part in ("time", "zoom", "steps", "ranks", "life")}

    assert not any(one.exception for one in shown.values())
    assert [len(figures(one)) for one in shown.values()] == [0, 1, 2, 1, 2]


def test_a_thousand_ranks_are_few_cells_and_less_than_a_megabyte(tmp_path: Path) -> None:
    put(tmp_path, NAME, even(1000, 4))

    shown = open_page("job", tmp_path, job=NAME, part="ranks")

    assert not shown.exception
    assert sum(len(one.proto.spec) for one in shown.get("plotly_chart")) < 1_000_000
    assert facts(shown)["Ranks"] == "1,000"


def test_a_life_of_several_attempts_can_be_judged_as_a_whole(tmp_path: Path) -> None:
    life = killed_three_times()
    put(tmp_path, NAME, b"".join(map(records.encode, life.rows)))

    shown = open_page("job", tmp_path, job=NAME)
    assert "4 attempts" in shown.get("button_group")[0].label
    shown.get("button_group")[0].set_value("whole life").run()

    assert not shown.exception
    assert "Nothing to fix: no lost work, checkpoint stall or hang above 10 %." in words(shown)
    assert facts(shown)["Goodput"] == "18.0 %"


def test_a_live_job_says_so_and_waits_for_the_visitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, NAME, even(2, 40))
    monkeypatch.setattr("tachoscope_explorer.screens.jobs.job.time.time", lambda: T0 + 10)

    shown = open_page("job", tmp_path, job=NAME)

    assert "the newest records" in words(shown)
    assert shown.button(key="refresh").disabled


def test_newer_records_are_read_when_the_visitor_wants_them(tmp_path: Path) -> None:
    put(tmp_path, NAME, even(2, 40))
    shown = open_page("job", tmp_path, job=NAME)
    shutil.rmtree(tmp_path / "jobs")
    put(tmp_path, NAME, even(2, 60))
    sources.job_times.clear()  # type: ignore[attr-defined]

    shown.run()
    assert facts(shown)["Steps"] == "38"
    assert "newer records are there" in words(shown)
    shown.button(key="refresh").click().run()

    assert facts(shown)["Steps"] == "58"


def test_a_window_in_an_earlier_attempt_is_judged_by_its_steps(tmp_path: Path) -> None:
    put(tmp_path, NAME, b"".join(map(records.encode, killed_three_times().rows)))

    shown = open_page("job", tmp_path, job=NAME, from_=milliseconds(T0), to=milliseconds(T0 + 15))

    assert not shown.exception
    assert facts(shown)["Steps"] == "5"


def saved(store: Path, name: str, document: bytes) -> None:
    folder = store / "jobs" / name / "reports"
    folder.mkdir(parents=True)
    (folder / "last.json").write_bytes(document)


def test_a_saved_report_stands_in_where_there_are_no_records(tmp_path: Path, report: Report) -> None:
    saved(tmp_path, NAME, dump(report))

    shown = open_page("job", tmp_path, job=NAME)

    assert "This job has no records" in words(shown)
    assert "input_straggler, rank 1" in words(shown)


def test_small_losses_have_cards_below_their_heading_and_do_not_count_in_the_verdict(tmp_path: Path, report: Report) -> None:
    large = report.findings[0]
    small = msgspec.structs.replace(large, class_="checkpoint_stall", severity="info", share=0.07, small=True)
    saved(tmp_path, NAME, dump(msgspec.structs.replace(report, findings=[large, small])))

    shown = words(open_page("job", tmp_path, job=NAME))

    before, heading, below = shown.partition("Small losses")
    assert heading
    assert "checkpoint_stall" not in before
    assert "checkpoint_stall" in below
    assert "1 more below" not in shown


def test_a_saved_report_of_a_newer_schema_is_told_with_what_to_do(tmp_path: Path, report: Report) -> None:
    saved(tmp_path, NAME, dump(msgspec.structs.replace(report, schema=SCHEMA + 1)))

    shown = open_page("job", tmp_path, job=NAME)

    assert not shown.exception
    assert f"schema {SCHEMA + 1}, newer than the schema {SCHEMA}" in shown.error[0].value
    assert "pip install" in shown.error[0].value.replace("\\", "")


def test_a_class_that_this_version_does_not_know_is_shown_with_what_it_carries(tmp_path: Path, report: Report) -> None:
    strange = msgspec.structs.replace(
        report.findings[0], class_="warp_core", runbook="runbooks/../../etc/passwd", action="eject it"
    )
    saved(tmp_path, NAME, dump(msgspec.structs.replace(report, findings=[strange])))

    shown = open_page("job", tmp_path, job=NAME)

    assert not shown.exception
    assert "warp_core" in words(shown)
    assert "eject it" in words(shown)
    assert "root:" not in words(shown)


def test_names_that_are_scripts_are_shown_as_text(tmp_path: Path, report: Report) -> None:
    script = "<script>alert(1)</script>"
    finding = report.findings[0]
    evidence = [msgspec.structs.replace(row, signal=script, source=script, unit=script) for row in finding.evidence]
    changed = msgspec.structs.replace(finding, class_=script, action=script, evidence=evidence, runbook=script)
    document = msgspec.structs.replace(report, findings=[changed], review=[script], lineage={script: script})
    saved(tmp_path, NAME, dump(document))

    shown = open_page("job", tmp_path, job=NAME)

    assert not shown.exception
    assert "&lt;script&gt;" in words(shown)
    assert script not in words(shown)


def test_where_the_processes_stood_at_the_last_hang_is_on_the_page_the_odd_one_first(tmp_path: Path) -> None:
    put(tmp_path, "planted", even(2, 20))
    waits = ["/lib/python3.11/site-packages/torch/autograd/graph.py:824 _engine_run_backward", "/home/me/train.py:70 main"]
    stands = ["/home/me/save.py:41 write_shard", "/home/me/train.py:75 main"]
    processes = [
        ProcessEvidence(rank, 1000 + rank, threads=[ThreadEvidence(1000 + rank, state="S", frames=frames)])
        for rank, frames in enumerate([waits, stands])
    ]
    write(
        Store(str(tmp_path)),
        HangBundle(job="planted", attempt=0, node="node-1", since=1.7e9, noticed=1.7e9 + 11, processes=processes),
    )
    shown = open_page("job", tmp_path, job="planted")

    assert not shown.exception
    assert "Its last hang" in words(shown)
    labels = [one.label for one in shown.expander if "rank" in one.label.lower()]
    assert [label.split(" in ")[0] for label in labels] == ["Rank 1 stands", "Rank 0 waits for other ranks"]
    assert any("save.py:41 write_shard" in code.value for code in shown.code)
