import pytest
from benchmarks.lab.wilson import wilson
from hypothesis import given
from hypothesis import strategies as st


def test_it_is_the_interval_of_the_textbooks() -> None:
    # Newcombe 1998, https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E, table I, method 3
    for hits, cases, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson(hits, cases) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500).flatmap(lambda cases: st.tuples(st.integers(0, cases), st.just(cases))))
def test_the_share_lies_within_and_nothing_leaves_zero_to_one(counts: tuple[int, int]) -> None:
    hits, cases = counts
    low, high = wilson(hits, cases)

    assert 0 <= low <= (hits / cases if cases else 0.5) <= high <= 1


def test_more_hits_than_cases_are_refused() -> None:
    with pytest.raises(ValueError, match="3 hits of 2 cases"):
        wilson(3, 2)
