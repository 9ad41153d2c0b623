"""Many values in one test: each is tried, and what is wrong is told with its value."""

from __future__ import annotations

import pytest

from trying import each

tried: list[tuple[int, str]] = []


@each("number", [1, 2, 3])
@each(("letter", "known"), [("a", True), ("b", False)])
def wrong_for_b(number: int, letter: str, known: bool, folder: str) -> None:
    tried.append((number, letter))
    assert known, folder


def test_all_values_are_tried_and_each_that_is_wrong_is_named() -> None:
    tried.clear()

    with pytest.raises(ExceptionGroup, match="3 of 3 values") as caught:
        wrong_for_b(folder="given by a fixture")

    assert tried == [(number, letter) for number in (1, 2, 3) for letter in "ab"]
    assert [error.__notes__ for error in caught.value.exceptions] == [["number = 1"], ["number = 2"], ["number = 3"]]
    assert [error.exceptions[0].__notes__ for error in caught.value.exceptions] == [["letter = 'b', known = False"]] * 3


def test_nothing_to_try_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="no values of name"):
        each("name", [])
