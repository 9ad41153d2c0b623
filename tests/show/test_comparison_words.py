import io
from typing import Any

import msgspec
import pytest
from rich.console import Console, Group

from tachoscope_core.report.comparison import Comparison, Difference, LineageDifference
from tachoscope_show.report import comparison_words
from tachoscope_show.report.comparison_words import made_of, rows, verdict
from tachoscope_show.report.text import comparison_parts
from tachoscope_show.text.pages import rendered


def difference(name: str, before: float, now: float, *, error: float = 0.001) -> Difference:
    low, high = now - before - error, now - before + error
    return Difference(name=name, baseline_seconds=before, seconds=now, interval=(low, high), beyond_noise=low > 0 or high < 0)


def comparison(**changes: Any) -> Comparison:
    made = Comparison(
        baseline="last-week",
        source="the store",
        baseline_steps=2000,
        baseline_ranks=4,
        verdict="slower",
        severity="warning",
        share=0.15,
        step=difference("step", 0.1, 0.115),
        states=[
            difference("data_wait", 0.001, 0.016),
            difference("compute", 0.097, 0.0971),
            difference("gc", 0.0, 0.002, error=1.0),
        ],
        ranks=[3],
        made_of=[LineageDifference(name="script_sha256", baseline="a" * 64, now="")],
        notes=["4 ranks in the baseline, 8 now"],
    )
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "slower: the step takes 115.0 ms against 100.0 ms, +15.0 %, beyond the noise; rank 3"),
        ({"ranks": None}, "slower: the step takes 115.0 ms against 100.0 ms, +15.0 %, beyond the noise"),
        ({"verdict": "alike"}, "alike: the step takes 115.0 ms against 100.0 ms, +15.0 %"),
        ({"verdict": "unclear"}, "beyond the noise, which is too large to say whether by 10 % or more"),
        ({"verdict": "unclear", "step": difference("step", 0.1, 0.115, error=1.0)}, "too large to say whether it changed"),
        ({"verdict": "not_comparable"}, "but a step is not the same work"),
    ],
)
def test_each_verdict_is_a_sentence_of_its_own(changes: dict[str, Any], said: str) -> None:
    assert verdict(comparison(**changes)).endswith(said)


def test_states_that_changed_by_less_than_a_hundredth_of_the_step_are_left_out_and_uncertain_ones_marked() -> None:
    assert [(row.name, row.certain) for row in rows(comparison())] == [("step", True), ("data_wait", True), ("gc", False)]


def test_signs_are_of_the_difference() -> None:
    (step, *_) = rows(comparison())

    assert (step.difference, step.interval) == ("+15.0 ms", "+14.0 ms to +16.0 ms")


def test_digests_are_short_and_what_is_not_known_is_a_dash() -> None:
    assert made_of(comparison()) == [("script sha256", "a" * 12, "-")]


def test_the_terminal_and_the_page_say_all_of_it() -> None:
    text = io.StringIO()
    Console(file=text, width=110).print(Group(*comparison_parts(comparison())))
    page = rendered("comparison.html", one=comparison(), words=comparison_words)

    for words in (
        "Compared with last-week (2,000 steps, the store)",
        "slower: ",
        "data_wait",
        "+14.0 ms to +16.0 ms",
        "aaaaaaaaaaaa",
        "8 now",
    ):
        assert words in text.getvalue()
        assert words in page
    assert '<div class="card warning">' in page


def test_foreign_text_is_escaped_in_the_page() -> None:
    page = rendered(
        "comparison.html",
        one=comparison(baseline="<script>", made_of=[LineageDifference(name="image", baseline="<b>", now="&")]),
        words=comparison_words,
    )

    assert "<script>" not in page
    assert "<b>&lt;" not in page.replace("<b>slower", "")
    assert "&lt;b&gt;" in page
