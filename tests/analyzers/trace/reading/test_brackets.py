from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.reading import json_brackets as brackets
from tachoscope_analyzers.trace.reading.json_brackets import BracketError, Brackets, ends_of

values = st.recursive(
    st.one_of(st.integers(), st.text('\\"{}[],: \né', max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text('\\"{}[]a', max_size=3), inner, max_size=3)),
    max_leaves=8,
)
events = st.dictionaries(st.sampled_from(["name", "args", "\\", '"']), values, max_size=4)


@given(st.lists(events, max_size=6), st.sampled_from([", ", ",\n ", "  "]), st.randoms(use_true_random=False))
def test_ends_are_found_however_the_text_is_cut_into_pieces(found: list[object], between: str, chance: random.Random) -> None:
    texts = [json.dumps(event).encode() for event in found]
    text = between.encode().join(texts) + b" ]" + b'}"{[]'
    counter, ends, start = Brackets(), [], 0
    while True:
        size = chance.randrange(1, 9)
        here, closed = counter.ends(text[start : start + size])
        ends += [start + int(end) for end in here]
        if closed is not None:
            break
        start += size
    expected, place = [], 0
    for one in texts:
        place += len(one)
        expected.append(place)
        place += len(between)
    assert ends == expected
    assert start + closed == text.index(b" ]" + b'}"{[]') + 1
    assert ends_of(text)[0].tolist() == expected


@given(st.integers(0, 6), st.integers(1, 5))
@example(5, 1)
def test_only_an_odd_number_of_backslashes_hides_a_quote(count: int, size: int) -> None:
    text = b'{"' + b"\\" * count + b'"' + (b'"' if count % 2 else b"") + b"}]"
    counter, closed, start = Brackets(), None, 0
    while closed is None:
        _, closed = counter.ends(text[start : start + size])
        start += size
    assert start - size + closed == len(text) - 1


def test_text_longer_than_a_piece_counts_on() -> None:
    event = b'{"name": "' + b"x}" * (brackets._PIECE_BYTES) + b'"}'
    ends, closed = ends_of(event + b"," + event + b"]")
    assert ends.tolist() == [len(event), 2 * len(event) + 1]
    assert closed == 2 * len(event) + 1


def test_a_bracket_that_was_never_opened_is_an_error() -> None:
    with pytest.raises(BracketError):
        ends_of(b'{"a": 1}}')
