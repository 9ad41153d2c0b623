"""Which sizes vary by the guards that failed, and the few lengths that add least padding to them."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tachoscope_analyzers.advice.recompilation import advice, padded_lengths, varying_sizes


def mismatch(old: int, new: int, tensor: str = "x", dimension: int = 1) -> str:
    return f"0/0: tensor '{tensor}' size mismatch at index {dimension}. expected {old}, actual {new}"


def test_the_sizes_of_a_dimension_are_all_that_its_guards_name() -> None:
    reasons = [mismatch(128, 131), mismatch(128, 140), mismatch(4, 3, "mask", 0), "0/0: n == 3"]
    first, second = varying_sizes(reasons)

    assert (first.tensor, first.dimension, first.sizes, first.failures) == ("x", 1, (128, 131, 140), 2)
    assert (second.tensor, second.sizes) == ("mask", (3, 4))


@settings(max_examples=60)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=9, unique=True).map(sorted))
def test_the_lengths_hold_every_size_and_no_other_choice_of_as_many_adds_less(sizes: list[int]) -> None:
    found = padded_lengths(sizes)
    tops = sorted({-(-size // 8) * 8 for size in sizes})

    def added(lengths: tuple[int, ...]) -> int:
        return sum(min(length for length in lengths if length >= size) - size for size in sizes)

    others = [chosen for k in range(1, 5) for chosen in itertools.combinations(tops, k) if chosen[-1] >= sizes[-1]]
    assert len(found.lengths) <= 4
    assert added(found.lengths) == min(map(added, others))
    assert (
        found.padding_ratio * sum(sizes) == added(found.lengths)
        or abs(found.padding_ratio * sum(sizes) - added(found.lengths)) < 1e-6
    )


def test_the_advice_names_the_call_the_lengths_and_what_they_add() -> None:
    (varying,) = varying_sizes(mismatch(100, size) for size in (110, 120, 130, 140, 150, 160, 170))
    words = advice(varying, "")

    assert "torch._dynamo.mark_dynamic(x, 1)" in words
    assert "4 lengths in place of 8" in words
    assert " % more numbers" in words


def test_a_limit_that_was_hit_is_to_be_raised_only_with_a_reason() -> None:
    assert "raise torch._dynamo.config.recompile_limit for all kinds of input" in advice(None, "recompile_limit (8)")
    (varying,) = varying_sizes([mismatch(100, 110)])
    assert "once the inputs vary no more than it allows" in advice(varying, "recompile_limit (8)")
    assert advice(None, "") == ""
