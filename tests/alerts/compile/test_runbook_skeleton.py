"""What of a runbook follows from the alert is made from it, and renewing it leaves what people wrote."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from helpers import REPOSITORY
from tachoscope_alerts.compile.detection_time import detection, in_words
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.runbooks import HEAD, HEADINGS, in_two_units, of_event, of_objectives, refresh, skeleton, stale
from tachoscope_alerts.spec import policy as policies
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Ratio, Selector, Slo
from tachoscope_alerts.spec.slo_files import load
from tachoscope_core.errors import TachoscopeError

POLICY = policies.load(REPOSITORY / "alerts" / "policy.yaml")
SLO = Slo(
    name="inference-availability",
    title="Availability",
    description="Requests are answered.",
    area="inference",
    indicator=Ratio(Selector("tachoscope_requests_total"), bad=Selector("tachoscope_requests_total", {"outcome": ("cut",)})),
    by=("service",),
    target=0.999,
    period_days=28,
    alert="InferenceAvailabilityBurn",
    pages=True,
    owner="inference-serving",
    target_source="https://sre.google/workbook/alerting-on-slos/",
)
EVENT = EventAlert(
    alert="GpuLost",
    severity="ticket",
    area="infrastructure",
    owner="gpu-fleet",
    slo="training-goodput",
    expr="tachoscope_gpu_up == 0",
    for_seconds=120,
    keep_firing_for_seconds=300,
    summary="GPU lost",
    description="A GPU is lost.",
    dashboard="",
    source="judgement: one is one too many",
    tests={},
    labels={},
    path="alerts/events/gpu.yaml",
    group="gpu",
)


def rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]


def test_a_skeleton_has_all_headings_and_cannot_be_shipped_as_it_is() -> None:
    page = skeleton(of_objectives([SLO]), POLICY)

    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == list(HEADINGS)
    assert page.count("TODO") == 8


def test_the_head_says_whose_the_page_is() -> None:
    head = HEAD.fullmatch(skeleton(of_objectives([SLO]), POLICY).splitlines()[0])

    assert head is not None
    assert (head["alert"], head["severity"]) == ("InferenceAvailabilityBurn", "page and ticket")
    assert (head["owner"], head["area"]) == ("inference-serving", "inference")
    assert head["test"] == "inference-availability_test.yaml"


def test_the_urgency_of_a_burn_is_that_of_the_workbooks_table_over_28_days() -> None:
    found = [row for row in rows(of_objectives([SLO]).urgency) if " / " in row[0]][1:]

    # 2 % of the budget in an hour is all of it in 50 hours; with everything bad 13.44 x 0.1 % of an hour are needed: 48 s. To them
    # come half of the base window and of an evaluation, and in three days of the sums: as in docs/guides/detection.md.
    assert found == [
        ["1h / 5m", "page", "1.34 %", "13.4", "2 d 2 h", "101 s"],
        ["6h / 30m", "page", "0.56 %", "5.6", "5 d", "2.9 min"],
        ["1d / 2h", "ticket", "0.28 %", "2.8", "10 d", "6.7 min"],
        ["3d / 6h", "ticket", "0.1 %", "1", "28 d", "21.9 min"],
    ]


def test_an_objective_that_never_pages_is_a_ticket_and_has_no_tier_of_a_page() -> None:
    subject = of_objectives([dataclasses.replace(SLO, pages=False)])

    assert (subject.severity, subject.test) == ("ticket", "inference-availability_tickets_test.yaml")
    assert "| page |" not in subject.urgency


def test_renewing_leaves_every_word_that_somebody_wrote() -> None:
    subject = of_event(EVENT)
    written = skeleton(subject, POLICY).replace("TODO: a query", "Ask nvidia-smi: a query").replace("2000-01-01", "2026-11-22")
    other = of_event(dataclasses.replace(EVENT, owner="storage", for_seconds=600))
    renewed = refresh(written, other, POLICY)

    changed = [(old, new) for old, new in zip(written.splitlines(), renewed.splitlines(), strict=True) if old != new]
    ends = "5 min after its condition was last true"
    assert [new for _, new in changed] == [
        "# GpuLost | ticket | storage | infrastructure | last tested 2026-11-22 by events-gpu_test.yaml",
        f"| ticket | when its condition has held for 10 min | {ends} | judgement: one is one too many |",
        "Owner: storage, #storage.",
    ]
    assert refresh(renewed, other, POLICY) == renewed


@pytest.mark.parametrize("slo", load([REPOSITORY / "alerts" / "slos"]), ids=lambda slo: slo.name)
def test_the_times_of_a_burn_are_those_of_the_page_on_detection(slo: Slo) -> None:
    found = [row for row in rows(of_objectives([slo]).urgency) if " / " in row[0]][1:]

    for severity in {row[1] for row in found}:
        first = in_words(detection(slo, severity, 1.0, Timing()).fires)  # type: ignore[arg-type]  # read from a table
        assert first in [row[5] for row in found if row[1] == severity]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("tachoscope_gpu_up == 0", "compares the newest values"),
        (
            "up offset 1h unless max_over_time(up[10m:30s]) > rate(x[90s])",
            "looks back 2 min, 10 min",
        ),
        ("a - a offset 1h", "looks back 1 h"),
    ],
)
def test_an_event_without_a_for_says_how_far_its_condition_looks_back(expression: str, said: str) -> None:
    urgency = of_event(dataclasses.replace(EVENT, for_seconds=0, expr=expression)).urgency

    assert [row[1] for row in rows(urgency) if row[0] == "ticket"] == [f"as soon as its condition is true, which {said}"]


def test_a_page_without_a_place_for_a_generated_block_is_refused_with_what_to_add() -> None:
    page = skeleton(of_event(EVENT), POLICY).replace("<!-- generated: urgency -->\n", "")

    with pytest.raises(TachoscopeError, match="GpuLost.md has no place for its urgency .*<!-- generated: urgency -->"):
        refresh(page, of_event(EVENT), POLICY)
    with pytest.raises(TachoscopeError, match=r"GpuLost.md:1: the first line is 'hello'"):
        refresh("hello\n", of_event(EVENT), POLICY)


def test_the_escalation_is_the_policys_for_the_severities_of_the_alert() -> None:
    page, both = skeleton(of_event(EVENT), POLICY), skeleton(of_objectives([SLO]), POLICY)

    assert [row[0] for row in rows(page) if row[0] in {"page", "ticket"} and len(row) == 3] == ["ticket"] * len(
        POLICY.escalation["ticket"]
    )
    for step in (*POLICY.escalation["page"], *POLICY.escalation["ticket"]):
        assert f"{step.who} {step.what}" in both


def test_the_alert_that_always_fires_escalates_as_a_page_since_its_end_is_one() -> None:
    subject = of_event(dataclasses.replace(EVENT, alert="Watchdog", severity="none"))

    assert subject.severity == "none"
    assert subject.escalates_as == ("page",)


def test_objectives_of_one_alert_that_differ_in_owner_are_refused() -> None:
    with pytest.raises(TachoscopeError, match="differ in owner"):
        of_objectives([SLO, dataclasses.replace(SLO, owner="storage")])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(20, "20 s"), (90, "2 min"), (2419.2, "40 min"), (3600, "1 h"), (180_000, "2 d 2 h"), (2_592_000, "30 d")],
)
def test_times_are_said_by_their_two_largest_units(seconds: float, words: str) -> None:
    assert in_two_units(seconds) == words


def test_an_alert_without_a_page_gets_a_skeleton_and_a_page_that_is_current_is_left_alone(tmp_path: Path) -> None:
    about = [of_event(EVENT), of_objectives([SLO])]
    (tmp_path / "GpuLost.md").write_text(skeleton(about[0], POLICY))
    found = stale(tmp_path, about, POLICY)

    assert found == {tmp_path / "InferenceAvailabilityBurn.md": skeleton(about[1], POLICY)}
    for path, page in found.items():
        path.write_text(page)
    assert stale(tmp_path, about, POLICY) == {}
