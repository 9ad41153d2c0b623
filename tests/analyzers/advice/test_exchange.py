"""Exposed exchange: the advised number of batches is the least that halves its share, and no step is promised to be too short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.advice import exchange
from tachoscope_analyzers.advice.exchange import Exchange, batch_seconds, batches_for_half_the_share, hidden_at_most


@given(step=st.floats(0.001, 100.0), ratio=st.floats(0.01, 0.95))
def test_the_advised_batches_halve_the_share_and_one_less_does_not(step: float, ratio: float) -> None:
    exposed = ratio * step
    batches = batches_for_half_the_share(step, exposed)

    def share(of: int) -> float:
        return exposed / of / batch_seconds(step, exposed, of)

    assert share(batches) <= ratio / 2 * (1 + 1e-6)
    assert share(batches - 1) > ratio / 2 * (1 - 1e-6)


def test_nothing_but_exchange_has_no_number_of_batches() -> None:
    with pytest.raises(ValueError, match="nothing to share"):
        batches_for_half_the_share(1.0, 1.0)
    assert exchange.advice(Exchange(1.0, 1.0, 2)).text == ""


@given(exposed=st.floats(0.0, 1.0), backward=st.none() | st.floats(0.0, 1.0))
def test_overlap_hides_no_more_than_the_exchange_or_backward(exposed: float, backward: float | None) -> None:
    assert hidden_at_most(Exchange(2.0, exposed, 2, backward)) <= min(exposed, backward if backward is not None else 0.0)


def test_the_words_carry_both_ways_with_their_numbers() -> None:
    words = exchange.advice(Exchange(step=0.12, exposed=0.05, ranks=2, backward=0.03)).text

    assert words == (
        "start it earlier in backward (DDP with a smaller bucket_cap_mb, static_graph=True): at most min(50 ms, 30 ms) hides, 90 "
        "ms a step. Or accumulate 3 batches an exchange (no_sync()): ceil((2 x 120 ms - 50 ms) / 70 ms) = 3 halve its share: 86.7 "
        "ms a batch, not 120 ms"
    )


def test_where_backward_was_not_measured_only_accumulation_is_advised() -> None:
    assert exchange.advice(Exchange(step=0.12, exposed=0.05, ranks=2)).text.startswith("accumulate 3 batches")


def test_calls_of_the_script_itself_are_to_be_made_asynchronous() -> None:
    assert "async_op=True" in exchange.advice(Exchange(step=0.12, exposed=0.05, ranks=2, backward=0.03, blocking_calls=0.05)).text


def test_work_that_is_too_small_for_its_ranks_is_told_so_and_what_one_would_need() -> None:
    words = exchange.advice(Exchange(step=0.0535, exposed=0.05, ranks=4)).text

    assert "one alone would do the 4 batches of a step in 4 x 3.5 ms = 14 ms instead of 53.5 ms (3.8x as fast)" in words
    assert "one alone" not in exchange.advice(Exchange(step=0.0535, exposed=0.05, ranks=64)).text


def test_the_words_stay_short() -> None:
    assert len(exchange.advice(Exchange(98.76, 43.21, 2048, 32.10, 0.0)).text) <= 310
