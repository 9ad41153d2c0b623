from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tachoscope_dashboards.lint import link_rules
from tachoscope_explorer.navigation import PAGES
from tachoscope_explorer.page.view import View, parameters_of, view_of

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)
VIEWS = st.builds(
    View,
    job=NAMES,
    baseline=NAMES,
    trace=NAMES,
    service=st.text(st.characters(exclude_categories=("C",)), max_size=30).filter(lambda text: "{" not in text),
    rank=st.none() | st.integers(0, 9_999_999),
    start=st.none() | st.integers(0, 10**12).map(lambda number: number / 1e3),
)


@given(VIEWS)
def test_a_view_is_what_its_address_asks_for(view: View) -> None:
    assert view_of(parameters_of(view)) == view


@given(st.dictionaries(st.sampled_from(["job", "trace", "rank", "from", "to", "slo", "without"]), st.text(max_size=40)))
def test_whatever_an_address_says_there_is_a_view_and_what_is_wrong_is_said(parameters: dict[str, str]) -> None:
    view = view_of(parameters)

    assert view.rank is None or view.rank >= 0
    assert view.start is None or view.end is None or view.start < view.end
    assert all(sentence.isprintable() for sentence in view.wrong)


def test_boards_link_to_pages_that_there_are_with_parameters_that_they_know() -> None:
    known = set(parameters_of(View("job", "base", "service", "model", rank=1, slo="slo", start=1.0, end=2.0)))

    assert set(link_rules.PAGES) <= {path for path, *_ in PAGES}
    assert set().union(*link_rules.PAGES.values()) <= known
