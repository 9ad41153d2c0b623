from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import course_making
from exploring import filled, open_page, words
from life_making import PlantedLife, killed_three_times
from making import job
from serving_making import Server
from tachoscope_analyzers.fleet.job_summary import GravestFinding, JobSummary
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.page.widgets import csv
from tachoscope_explorer.screens.jobs import list as jobs
from tachoscope_explorer.sources import summary_cache as summaries
from tachoscope_explorer.sources.job_rows import rows, table
from tachoscope_explorer.sources.job_slos import JobSlos

ONE_RANK = course_making.lines(steps=40, ranks=1)
LATE = course_making.lines(course_making.late(2, 1, 300, seconds=0.05), steps=60)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def listed(shown: AppTest) -> pd.DataFrame:
    assert not shown.exception
    return shown.dataframe[0].value.set_index("job")


def test_an_empty_store_says_so_with_the_two_commands_that_fill_it(store: Path) -> None:
    shown = open_page("jobs", store)

    assert "contains no job yet" in words(shown)
    assert [line.split(" --store")[0] for line in shown.code[0].value.splitlines()] == ["tachoscope demo", "tachoscope run"]
    assert not shown.dataframe


def test_a_store_that_cannot_be_reached_is_told_with_the_way_out(store: Path) -> None:
    shown = open_page("jobs", store, started=Settings("nowhere://bucket"))

    assert "nowhere" in shown.error[0].value
    assert "explore --store" in shown.code[0].value


def test_each_job_has_its_line_and_the_sums_stand_above(store: Path) -> None:
    lives = b"".join(map(records.encode, killed_three_times().rows))
    shown = open_page("jobs", filled(store, {"quick": ONE_RANK, "late": LATE, "killed": lives}))

    frame = listed(shown)
    assert set(frame.index) == {"quick", "late", "killed"}
    assert list(frame.loc["late", "severity"]) == ["critical"]
    assert frame.loc["late", "worst finding"].startswith("input_straggler: ")
    assert frame.loc["late", "worst finding"].endswith("rank 2")
    assert frame.loc["late", "ranks"] == 4
    assert frame.loc["quick", "mean step"] == pytest.approx(0.098, rel=0.05)
    assert 1 < len(frame.loc["quick", "step time"]) <= 60
    assert frame.loc["killed", "goodput"] < 100
    assert frame.loc["killed", "objectives"] == "not measured: the store has no samples of agents"
    assert pd.isna(frame.loc["killed", "idle cost"])
    assert "Jobs 3" in words(shown)
    assert "Idle cost not known" in words(shown)


@pytest.mark.bar  # of a thousand ranks test_job.py has a page
def test_a_thousand_ranks_are_one_line(store: Path) -> None:
    steps = [[{"data_wait": 0.001, "forward": 0.03, "backward": 0.06}] * 1000] * 12

    frame = listed(open_page("jobs", filled(store, {"large": job(steps)})))

    assert frame.loc["large", "ranks"] == 1000


def test_a_service_stands_in_the_list_with_its_requests(store: Path) -> None:
    server = Server(service="chat")
    server.start()
    for number in range(30):
        server.request(1.0 + number, prefill=0.2, gaps=(0.02,) * 10)
    server.end(40.0)

    frame = listed(open_page("jobs", filled(store, {"chat": server.lines()})))

    assert frame.loc["chat", "steps"] == 30


def test_a_job_that_cannot_be_judged_has_a_line_that_says_why(store: Path) -> None:
    life = PlantedLife("started")
    life.launcher(0.0, 5.0, code=1)

    frame = listed(open_page("jobs", filled(store, {"started": b"".join(map(records.encode, life.rows))})))

    assert frame.loc["started", "status"] == "failed"
    assert list(frame.loc["started", "severity"]) == ["cannot be determined"]
    assert "no training step" in frame.loc["started", "worst finding"]
    assert pd.isna(frame.loc["started", "goodput"])


def test_a_folder_whose_name_is_not_a_valid_job_name_is_ignored(store: Path) -> None:
    name = "<script>alert(1)"
    (store / "jobs" / name / "records").mkdir(parents=True)
    (store / "jobs" / name / "records" / "a").touch()

    shown = open_page("jobs", store)

    assert not shown.exception
    assert "<script>" not in words(shown)


def keep(store: Path, summary: JobSummary) -> None:
    """Put a summary where the explorer finds it, as another process of the same version may have."""
    kept = summaries.CachedSummary(made_by=summaries._maker(), url=str(store), made=time.time(), summary=summary)
    path = summaries.cache_file(str(store), summary.job)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(kept))


def test_a_class_that_this_version_does_not_know_is_named_and_can_be_looked_for(store: Path) -> None:
    filled(store, {"new": ONE_RANK, "old": ONE_RANK})
    worst = GravestFinding(class_="quantum_**stall**", severity="fatal", seconds_per_step=0.5, share=0.5, ranks=[3])
    keep(store, JobSummary(job="new", kind="training", written=Store(str(store)).job_times()["new"], worst=worst))

    shown = open_page("jobs", store)

    assert "quantum_**stall**: of a class that this version does not know" in listed(shown).loc["new", "worst finding"]
    assert list(listed(shown).loc["new", "severity"]) == ["fatal"]
    shown.multiselect(key="class").select("quantum_**stall**").run()
    assert list(listed(shown).index) == ["new"]


def test_a_kept_line_that_is_damaged_is_made_anew(store: Path) -> None:
    filled(store, {"one": ONE_RANK})
    path = summaries.cache_file(str(store), "one")
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"made_by": "\xff')

    assert listed(open_page("jobs", store)).loc["one", "ranks"] == 1
    assert json.loads(path.read_bytes())["summary"]["job"] == "one"


def test_what_is_looked_for_comes_from_the_address_and_from_the_page(store: Path) -> None:
    filled(store, {"quick-1": ONE_RANK, "late-1": LATE})

    assert list(listed(open_page("jobs", store, q="QUICK")).index) == ["quick-1"]
    shown = open_page("jobs", store, class_="input_straggler")
    assert list(listed(shown).index) == ["late-1"]
    shown.text_input(key="q").input("nothing").run()
    assert "No job matches" in words(shown)
    assert not shown.dataframe


def test_more_jobs_than_are_judged_at_once_are_listed_and_judged_when_asked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "AT_ONCE", 2)
    shown = open_page("jobs", filled(store, dict.fromkeys(("a", "b", "c"), ONE_RANK)))

    assert list(listed(shown)["worst finding"]).count("not analyzed yet") == 1
    assert "Not analyzed yet: 1 job of 3" in words(shown)
    shown.button(key="more").click().run()
    assert list(listed(shown)["worst finding"]).count("not analyzed yet") == 0


def test_a_running_job_is_shown_as_such_and_the_list_refreshes_itself(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.7e9 + 6)
    monkeypatch.setattr(
        summaries, "make", lambda *args: JobSummary(job=args[1], status="running", written=1.7e9, last_record=1.7e9)
    )

    shown = open_page("jobs", filled(store, {"live": ONE_RANK}))

    assert listed(shown).loc["live", "status"] == "running"
    assert "Refreshed every 5 s" in words(shown)


def test_a_ticked_row_leads_to_its_job(store: Path) -> None:
    shown = open_page("jobs", filled(store, {"one": ONE_RANK}))

    shown.session_state["jobs-table"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    shown.run()

    assert not shown.exception
    assert [title.value for title in shown.title] == ["one"]
    assert shown.query_params["job"] in ("one", ["one"])


def test_traces_of_the_command_line_are_listed_above_the_jobs(tmp_path: Path, store: Path) -> None:
    trace = tmp_path / "rank_0 *bold*.json"
    trace.write_text('{"traceEvents": []}')

    shown = open_page("jobs", store, started=Settings(str(store), traces=(str(trace),)))

    (link,) = shown.get("page_link")
    assert link.proto.label.startswith("Traces of the command line: 1 file")
    assert r"\*bold\*" in link.proto.label
    assert "trace=command-line" in link.proto.query_string


def test_traces_that_are_not_there_are_told_and_the_jobs_are_listed(store: Path) -> None:
    shown = open_page("jobs", filled(store, {"one": ONE_RANK}), started=Settings(str(store), traces=("/nowhere/at/all.json",)))

    assert "/nowhere/at/all" in shown.error[0].value.replace("\\", "")
    assert list(listed(shown).index) == ["one"]


def test_the_table_can_be_taken_away_without_what_only_the_page_can_show() -> None:
    summary = JobSummary(job="=1+1", step_seconds=[0.5, 0.25], mean_step=0.375)
    frame = table(rows({"=1+1": 1.0}, {"=1+1": summary}, now=2.0), JobSlos())

    head, line = csv(jobs._flat(frame)).decode().splitlines()

    assert head.split(",")[:2] == ["job", "status"]
    assert "compare" not in head
    assert line.startswith("'=1+1,unknown,")
    assert ",0.5 0.25,0.375," in line
