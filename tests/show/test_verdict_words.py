"""The first lines of a report: sentences that a user understands, alike in the terminal and on the page."""

import io
import string
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tachoscope_core.report.report import Evidence, Finding, Ledger, QualityNote, Report, StepSeconds, Window
from tachoscope_core.report.taxonomy import BY_SLUG, CORES_USED
from tachoscope_show.report import html as render_html
from tachoscope_show.report import text as render_text
from tachoscope_show.report.verdict_words import first_lines, sentence
from trying import each


def finding(class_: str, **values: Any) -> Finding:
    made = Finding(
        class_=class_, severity="warning", seconds_per_step=0.1, share=0.254, share_ci=(0.2, 0.3), ranks="all", confidence=0.9,
        runner_up=None, evidence=[], speedup_if_fixed=1.34, action="do this", runbook="",
    )  # fmt: skip
    return msgspec.structs.replace(made, **values)


def report(*found: Finding, **values: Any) -> Report:
    made = Report(
        job="planted", window=Window(start=0.0, end=10.0, steps=100), ranks=2, sources=[],
        step_seconds=StepSeconds(mean=0.4, p50=0.4, p95=0.4, p99=0.4),
        ledgers=[Ledger(unit="rank", wall_seconds=1.0, states={"compute": 1.0})], goodput=0.5,
        findings=list(found), not_measured=[],
    )  # fmt: skip
    return msgspec.structs.replace(made, **values)


SHARED = finding(
    "cpu_contention",
    share=0.6,
    cause="other_processes",
    condition=True,
    evidence=[Evidence(signal=CORES_USED["other_processes"], value=0.8, threshold=2.0, unit="cores")],
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            finding("input_workers", where="train.py:122 get_batch"),
            "The data loader takes 25 % of each step (train.py:122 get_batch).",
        ),
        (
            finding("host_pause", cause="evaluation", every_steps=200, where="train.py:88 validate"),
            "Validation takes 25 % of the step time (every 200 steps, train.py:88 validate).",
        ),
        (finding("checkpoint_stall", ranks=[0]), "Saving checkpoints on rank 0 takes 25 % of each step."),
        (finding("compute_straggler", ranks=[1]), "Rank 1 is slower than the others: the step takes 34 % longer."),
        (finding("unknown", where="train.py:88 log_images"), "Unexplained: 25 % of each step (train.py:88 log_images)."),
        (finding("compute_bound", severity="info", share=0.94), "Nothing to fix: 94 % of each step is computing."),
        (finding("of_a_newer_version"), "of_a_newer_version, all ranks."),
    ],
)
def test_the_first_line_is_a_sentence_with_who_how_much_and_where(found: Finding, expected: str) -> None:
    text, made = io.StringIO(), report(found)
    render_text.render(made, Console(file=text, width=120))

    assert text.getvalue().splitlines()[0] == expected
    assert f'<p class="verdict">{expected}</p>' in render_html.render(made)


def test_a_condition_of_the_machine_follows_what_the_job_can_change() -> None:
    lines = first_lines(report(finding("input_fetch"), SHARED))

    assert lines.verdict == "Reading data takes 25 % of each step."
    assert lines.size == "100.0 ms of 400.0 ms; 95 % interval 20.0 to 30.0 %; 1.34x as fast if fixed"
    assert lines.action == "do this"
    (condition,) = lines.conditions
    assert condition.startswith("The machine is shared: other processes took 0.8 of 2 cores")


def test_with_a_condition_alone_the_job_has_nothing_to_fix() -> None:
    assert first_lines(report(SHARED)).verdict == "Nothing in the job to fix: no bottleneck above 10 %."
    assert first_lines(report()).verdict == "Nothing to fix: no bottleneck above 10 %."


def test_a_warning_is_said_before_a_larger_loss_that_is_not_certain() -> None:
    uncertain = finding("host_pause", severity="info", share=0.5)

    assert first_lines(report(uncertain, finding("input_fetch"))).verdict.startswith("Reading data")


def test_from_bad_data_nothing_is_concluded() -> None:
    bad = QualityNote(what="half is missing", severity="bad", means="nothing")

    assert "half is missing" in first_lines(report(finding("input_fetch"), quality=[bad])).verdict


@each(("class_", "cause"), [(slug, cause) for slug, entry in BY_SLUG.items() for cause in ("", *entry.causes)])
@each("ranks", ["all", [3], [1, 2]])
def test_every_class_has_a_sentence_that_can_be_filled(class_: str, cause: str, ranks: Any) -> None:
    made = sentence(finding(class_, cause=cause, ranks=ranks), report())

    assert made[0] in string.ascii_uppercase and made.endswith(".") and "{" not in made


def test_a_cause_has_a_sentence_of_its_own() -> None:
    shared = BY_SLUG["cpu_contention"]

    assert CORES_USED.keys() <= shared.causes.keys()
    assert len({shared.sentence_of(cause) for cause in ("", *shared.causes)}) == 1 + len(shared.causes)


SMALL = finding("checkpoint_stall", severity="info", share=0.07, share_ci=(0.06, 0.08), small=True)


def test_small_losses_are_listed_below_and_leave_the_verdict_as_it_is() -> None:
    nothing, healthy = report(SMALL), report(finding("compute_bound", severity="info", share=0.92), SMALL)

    assert first_lines(nothing).verdict == "Nothing to fix: no bottleneck above 10 %. Small losses are listed below."
    assert first_lines(healthy).verdict == "Nothing to fix: 92 % of each step is computing. Small losses are listed below."
    worse = first_lines(report(finding("input_workers"), SMALL))
    assert worse == first_lines(report(finding("input_workers")))


def test_small_losses_stand_below_all_other_findings_on_a_terminal_and_on_the_page() -> None:
    shown = report(finding("input_workers"), SMALL)
    console = Console(file=io.StringIO(), width=120)
    render_text.render(shown, console)
    assert isinstance(console.file, io.StringIO)

    for text in (console.file.getvalue(), render_html.render(shown)):
        before, heading, below = text.partition("Small losses")
        assert heading
        assert "input_workers" in before
        assert "checkpoint_stall" not in before
        assert "checkpoint_stall" in below
