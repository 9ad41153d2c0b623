"""The page: what a reader sees of ranks, runbooks and differences."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.job_life import Attempt, Cost, Life, Recovery, Span
from tachoscope_core.report.report import (
    Change,
    Evidence,
    Finding,
    Ledger,
    NotMeasured,
    QualityNote,
    Report,
    Source,
    StepSeconds,
    Window,
    dump,
    parse,
)
from tachoscope_show.life.words import RECOVERY_TITLES
from tachoscope_show.report.html import render
from tachoscope_show.text.state_bar import STATE_COLORS

STATES = {"compute": 1.0, "data_wait": 1.0}


def ledger(rank: int | None, wall: float) -> Ledger:
    return Ledger(unit="rank", wall_seconds=wall, states={"compute": wall / 2, "data_wait": wall / 2}, rank=rank)


def report(**values: Any) -> Report:
    finding = Finding(
        class_="input_straggler",
        severity="warning",
        seconds_per_step=0.1,
        share=0.3,
        share_ci=(0.2, 0.4),
        ranks=[1],
        confidence=0.9,
        runner_up=None,
        evidence=[],
        speedup_if_fixed=1.4,
        action="look at its shards",
        runbook="runbooks/input_straggler.md",
    )
    made = Report(
        job="planted",
        window=Window(start=0.0, end=10.0, steps=10),
        ranks=2,
        sources=[],
        step_seconds=StepSeconds(mean=0.3, p50=0.3, p95=0.3, p99=0.3),
        ledgers=[ledger(None, 6.0), ledger(0, 2.0), ledger(1, 4.0)],
        goodput=0.5,
        findings=[finding],
        not_measured=[],
        quality=[],
    )
    return msgspec.structs.replace(made, **values)


def test_the_bars_of_ranks_are_as_long_as_their_steps_and_say_how_long_these_are() -> None:
    ranks = render(report()).partition("By rank")[2]

    assert re.findall(r'class="bar thin" style="width:([\d.]+)%"', ranks) == ["50.00", "100.00"]
    assert "step 200.0 ms: compute 50.0 %" in ranks
    assert "step 400.0 ms" in ranks


def test_the_rank_that_a_finding_names_is_marked_and_no_other() -> None:
    marked = re.findall(r'<div class="late"><div class="dim"><b>rank (\d+)</b>[^\n]*?input_straggler', render(report()))

    assert marked == ["1"]


def test_the_runbook_is_in_the_page() -> None:
    page = render(report())

    assert "<summary>runbooks/input_straggler.md</summary>" in page
    assert "## Diagnosis" in page


def test_a_comparison_scrolls_within_itself_and_gives_full_names() -> None:
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"
    change = Change(kind="kernel", name=kernel, baseline_name="old", matched="operator", baseline_seconds=0.1, seconds=0.2)

    page = render(report(baseline="before", changes=[change]))

    assert '<div class="wide"><table>' in page
    assert 'title="void at::native::vectorized_elementwise_kernel&lt;4, at::native::AddFunctor&lt;float&gt;&gt;(int)"' in page
    assert "was old" in page


def test_no_difference_is_said() -> None:
    assert "<p>no difference</p>" in render(report(baseline="before", changes=[]))


def test_the_bar_of_all_ranks_stands_below_a_heading_of_its_own() -> None:
    note = QualityNote(severity="note", what="a gap", means="it counts as unexplained")

    page = render(report(quality=[note]))

    assert page.index("it counts as unexplained") < page.index("<h2>Where the time went</h2>") < page.index(">all ranks<")


def life(**values: Any) -> Report:
    attempt = Attempt(
        attempt=0, start=0.0, end=10.0, ranks=2, hosts=["node-0"], last_step=10, spans=[Span(state="steps", start=0.0, end=10.0)]
    )
    recovery = Recovery(attempt=0, kind="killed", rank=1, host="node-0", failed_at=5.0, restore_seconds=2.0)
    made = Life(denominator="launcher", allocated_seconds=6.0, attempts=[attempt], recoveries=[recovery])
    return report(life=msgspec.structs.replace(made, **values))


def test_each_cell_of_a_recovery_names_its_column_for_windows_too_narrow_for_the_table() -> None:
    cells = re.findall(r'data-title="(\w+)">([^<]*)<', render(life()).partition("Recoveries")[2])

    assert [name for name, _ in cells] == list(RECOVERY_TITLES)
    assert {"whose": "rank 1, node-0", "restore": "2.0 s", "total": "-"}.items() <= dict(cells).items()


def test_new_steps_do_not_look_like_the_ledgers_compute_and_the_legend_says_what_they_are() -> None:
    picture = render(life()).partition("<h2>Attempts</h2>")[2].partition("<h2>")[0]

    assert STATE_COLORS["compute"] not in picture
    assert "new steps (compute, communication and waits together)" in picture


def test_a_queue_without_a_price_has_no_empty_cell_and_shares_say_of_what_they_are() -> None:
    cost = Cost(unit="rank", device="", hours=1.0, by_state={}, price_per_hour=36.0, currency="EUR", money=36.0, source="ours")
    waited = Ledger(unit="rank", wall_seconds=10.0, states={"compute": 6.0, "queued": 4.0})

    page = render(msgspec.structs.replace(life(cost=cost, queued_seconds=4.0), ledgers=[waited]))

    row = page.partition("</span> queued</td>")[2].partition("</tr>")[0]
    assert re.findall(r">([^<]*)</td>", row) == ["40.0 %", "4.0 s", "-"]
    assert "shares are of allocated time and queue together" in page


MARKUP = "<i>!"


def with_markup(value: Any) -> Iterator[Any]:
    """Yield a document once for each text and each key in it, with markup in that one."""
    if isinstance(value, str):
        yield value + MARKUP
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in with_markup(one))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from ({**value, key: changed} for changed in with_markup(one))
            yield {name + MARKUP if name == key else name: rest for name, rest in value.items()}


def test_no_text_of_a_saved_report_becomes_markup() -> None:
    evidence = Evidence(signal="s", value=1.0, unit="u; v", source="w", threshold=2.0, comparison=">=")
    finding = msgspec.structs.replace(report().findings[0], evidence=[evidence, evidence], where="a.py:1 f")
    plain = report(
        findings=[finding],
        sources=[Source(path="p")],
        not_measured=[NotMeasured(class_="hang", missing="m")],
        quality=[QualityNote(severity="note", what="a", means="b")],
        baseline="before",
        changes=[Change(kind="kernel", name="k", baseline_name="old", matched="operator", baseline_seconds=0.1, seconds=0.2)],
        lineage={"code_reference": "git:1 a.py"},
    )
    rendered = 0
    for made in (plain, life()):
        for document in with_markup(json.loads(dump(made))):
            try:
                changed = parse(json.dumps(document).encode(), "saved")
            except (msgspec.ValidationError, TachoscopeError):
                continue  # what has to be one of a few words
            assert MARKUP not in render(changed)
            rendered += 1
    assert rendered > 40
