"""Why attempts failed, in the terminal and on the page: the root first, then what followed, then whether to try again."""

import io
import json

import msgspec
from rich.console import Console

from tachoscope_core.report.failures import Failure, SaidAfter
from tachoscope_core.report.job_life import Attempt, Life
from tachoscope_core.report.report import Ledger, Report, StepSeconds, Window, dump, parse
from tachoscope_show.report import failure_words
from tachoscope_show.report import html as render_html
from tachoscope_show.report import text as render_text

ROOT = Failure(
    attempt=1, time=5.0, step=7, rank=1, host="a", cause="exception", exception="ValueError", location="data.py:40",
    function="__getitem__", message="sample 17 has no label\nsecond line", cascade=[0, 2], same_error=[3],
    said_after=[SaidAfter(rank=0, seconds_after=1.5, message="RuntimeError: Connection closed by peer")],
)  # fmt: skip


def report(*found: Failure, attempts: int = 0) -> Report:
    made = Report(
        job="planted", window=Window(start=0.0, end=10.0, steps=100), ranks=2, sources=[],
        step_seconds=StepSeconds(mean=0.4, p50=0.4, p95=0.4, p99=0.4),
        ledgers=[Ledger(unit="rank", wall_seconds=1.0, states={"compute": 1.0})], goodput=0.5, findings=[], not_measured=[],
        failures=list(found),
    )  # fmt: skip
    life = Life(denominator="launcher", allocated_seconds=1.0, attempts=[attempt(number) for number in range(attempts)])
    return msgspec.structs.replace(made, life=life) if attempts else made


def attempt(number: int) -> Attempt:
    return Attempt(attempt=number, start=0.0, end=1.0, ranks=4, hosts=["a"], ended="failed")


def as_text(made: Report) -> str:
    console = Console(file=io.StringIO(), width=400)
    render_text.render(made, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_first_line_names_rank_host_exception_line_and_step() -> None:
    first, *then = failure_words.lines(ROOT)

    assert (
        first == "first failure: rank 1 on a failed with ValueError: sample 17 has no label, at data.py:40 (__getitem__), in step 7"
    )
    assert then == ["the same error on rank 3", "then rank 0 (1.5 s later): RuntimeError: Connection closed by peer"]


def test_the_root_is_the_first_that_a_reader_sees() -> None:
    assert as_text(report(ROOT)).startswith("first failure: rank 1 on a failed with ValueError")
    page = render_html.render(report(ROOT))
    assert page.index("First failure: rank 1") < page.index("Where the time went")


def test_of_attempts_that_others_went_on_from_a_table_tells() -> None:
    text = as_text(report(ROOT, attempts=3))

    assert not text.startswith("first failure")
    assert "why attempts failed" in text
    assert "Why attempts failed" in render_html.render(report(ROOT, attempts=3))


def test_a_failure_that_repeats_says_that_another_attempt_is_not_worth_it() -> None:
    again = msgspec.structs.replace(ROOT, repeats_attempt=0, policy="stop")

    assert failure_words.lines(again)[-1].startswith("attempt 0 had the same first failure")
    assert not any("policy" in line for line in failure_words.lines(ROOT))


def test_what_a_rank_said_is_shown_as_text_not_as_page() -> None:
    page = render_html.render(report(msgspec.structs.replace(ROOT, message="<script>alert(1)</script>")))

    assert "<script>alert(1)" not in page


def test_a_report_with_failures_is_read_as_it_was_written() -> None:
    made = report(ROOT)

    assert parse(dump(made), "x") == made
    assert json.loads(dump(made))["failures"][0]["cascade"] == [0, 2]
