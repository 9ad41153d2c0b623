"""The example server's engine: what it generates does not depend on what else it generates, and its cache has one owner a slot."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
import torch
from continuous_batching import BLOCK_TOKENS, Batch, Generation, Scheduler
from hypothesis import given
from hypothesis import strategies as st
from tiny_llama import Shape, TinyLlama

SHAPE = Shape(layers=2, width=32, heads=2, vocabulary=97, dtype=torch.float64)  # float64: sums in another order find the same token


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are slower by several threads, and much slower where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prompts(count: int = 9) -> list[list[int]]:
    randomly = random.Random(1)
    return [[randomly.randrange(97) for _ in range(randomly.randint(1, 70))] for _ in range(count)]


def generated(
    wanted: Sequence[Generation], *, kv_tokens: int = 2048, max_batch: int = 16, prefill_chunk: int = 0
) -> list[list[int]]:
    model, scheduler = TinyLlama(SHAPE, kv_tokens), Scheduler(kv_tokens, max_batch, prefill_chunk)
    scheduler.waiting.extend(wanted)
    while (batch := scheduler.plan()).shares:
        scheduler.finish(batch, model.forward(batch.parts))
    return [generation.output for generation in wanted]


def asked(tokens: int = 24) -> list[Generation]:
    return [Generation(prompt, tokens) for prompt in prompts()]


def without_a_cache(prompt: list[int], count: int) -> list[int]:
    """The textbook's decoder: everything again for each token, positions as complex numbers, softmax written out."""
    model, tokens = TinyLlama(SHAPE, BLOCK_TOKENS), list(prompt)
    for _ in range(count):
        length = len(tokens)
        turn = torch.exp(1j * torch.outer(torch.arange(length).double(), model.frequencies))[:, None]

        def turned(vectors: torch.Tensor, turn: torch.Tensor = turn) -> torch.Tensor:
            left, right = vectors.chunk(2, dim=-1)
            pairs = torch.complex(left, right) * turn
            return torch.cat([pairs.real, pairs.imag], dim=-1)

        def normed(hidden: torch.Tensor) -> torch.Tensor:
            return hidden / (hidden.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()

        hidden = model.embedding[tokens]
        for inputs, outputs, up, down in model.layers:
            queries, keys, values = (normed(hidden) @ inputs.T).reshape(length, 3, SHAPE.heads, -1).unbind(1)
            scores = torch.einsum("qhd,khd->hqk", turned(queries), turned(keys)) / model.head_width**0.5
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
            hidden = hidden + torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).reshape(length, -1) @ outputs.T
            gate, value = (normed(hidden) @ up.T).chunk(2, dim=1)
            hidden = hidden + (gate * gate.sigmoid() * value) @ down.T
        tokens.append(int((normed(hidden[-1]) @ model.head.T).argmax()))
    return tokens[len(prompt) :]


def test_each_token_is_what_a_plain_decoder_without_a_cache_finds() -> None:
    found = generated(asked(8))

    assert found == [without_a_cache(prompt, 8) for prompt in prompts()]
    assert len({token for output in found for token in output}) > 20  # a model that repeats itself would show nothing


@pytest.mark.parametrize(
    ("how", "preempts"),
    [
        ({"max_batch": 1}, False),
        ({"max_batch": 3}, False),
        ({"prefill_chunk": 7}, False),
        ({"kv_tokens": 160}, True),
        ({"kv_tokens": 112, "prefill_chunk": 16}, True),
    ],
)
def test_a_request_gets_the_same_tokens_alone_in_a_batch_in_chunks_and_preempted(how: dict[str, int], preempts: bool) -> None:
    wanted = asked()

    assert generated(wanted, **how) == generated(asked())
    assert any(generation.preemptions for generation in wanted) == preempts


def test_a_request_ends_at_its_stop_token_and_says_so() -> None:
    (full,) = generated([Generation(prompts()[0], 24)])
    stopped = Generation(prompts()[0], 24, stop_token=full[10])
    (output,) = generated([stopped])

    assert output == full[: full.index(full[10]) + 1]
    assert stopped.ended == "stop"


def test_states_are_told_as_they_are_entered_and_a_preempted_request_is_so_until_it_decodes_again() -> None:
    old, young = ([], [])
    wanted = [Generation([1] * 16, 40, entered=old.append), Generation([1] * 16, 40, entered=young.append)]
    generated(wanted, kv_tokens=80)

    assert old == ["prefill", "decode"]
    assert young == ["prefill", "decode", "preempted", "decode"]
    assert (wanted[0].preemptions, wanted[1].preemptions) == (0, 1)


class CheckedCache:
    """In place of a model: holds what was put in each slot, and looks whether each context is there as its owner put it."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, int]] = {}

    def forward(self, batch: Batch) -> list[int]:
        for (generation, count), part in zip(batch.shares, batch.parts, strict=True):
            whole = [*generation.prompt, *generation.output]
            assert list(part.tokens) == whole[part.first : part.first + count]
            self.held |= {part.slots[part.first + offset]: (id(generation), part.first + offset) for offset in range(count)}
        for (generation, count), part in zip(batch.shares, batch.parts, strict=True):
            assert [self.held[slot] for slot in part.slots] == [(id(generation), at) for at in range(part.first + count)]
        return [generation.length for generation, _ in batch.shares]


def assert_sound(scheduler: Scheduler, batch: Batch, order: list[Generation]) -> None:
    owned = [block for generation in scheduler.running for block in generation.blocks]
    assert sorted(owned + scheduler.free) == list(range(scheduler.blocks))  # one owner each, none lost
    assert not any(generation.blocks for generation in scheduler.waiting)
    assert len(scheduler.running) <= scheduler.max_batch
    missing = sum(generation.length - generation.computed for generation in scheduler.running if not generation.is_decoding)
    assert batch.prefill_tokens == min(missing, scheduler.prefill_chunk or missing)  # no more than allowed, and no less
    assert all(count > 0 for _, count in batch.shares)
    places = [order.index(generation) for generation in (*scheduler.running, *scheduler.waiting)]
    assert places == sorted(places)  # in turn, also those that were preempted
    assert batch.shares[0][0] is scheduler.running[0]  # the oldest always gets on


REQUEST = st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 30), st.none() | st.integers(0, 40))


@given(
    st.lists(REQUEST, min_size=1, max_size=25),
    st.integers(112, 400),
    st.integers(1, 8),
    st.sampled_from([0, 1, 5, 32]),
)
def test_whoever_comes_and_leaves_all_end_in_turn_and_the_cache_is_never_shared(
    wanted: list[tuple[int, int, int, int | None]], kv_tokens: int, max_batch: int, prefill_chunk: int
) -> None:
    """Of each request: tokens of prompt and output, the pass before which it comes, and after how many it leaves."""
    scheduler, cache = Scheduler(kv_tokens, max_batch, prefill_chunk), CheckedCache()
    coming = sorted(
        ((at, Generation([7] * prompt, output), leaves) for prompt, output, at, leaves in wanted), key=lambda row: row[0]
    )
    order = [generation for _, generation, _ in coming]
    assert all(scheduler.fits(generation) for generation in order)
    for number in range(30 + 25 * 25 * 101):
        scheduler.waiting += [generation for at, generation, _ in coming if at == number]
        for at, generation, leaves in coming:
            generation.gone |= leaves is not None and number >= at + leaves
        batch = scheduler.plan()
        if batch.shares:
            assert_sound(scheduler, batch, order)
            scheduler.finish(batch, cache.forward(batch))
        elif number > 30:
            break

    assert scheduler.kv_used == 0
    assert not scheduler.running
    assert not scheduler.waiting
    for generation in order:
        assert generation.gone or len(generation.output) == generation.max_tokens


def test_what_never_fits_is_told_before_it_waits() -> None:
    scheduler = Scheduler(kv_tokens=64, max_batch=4)

    assert scheduler.fits(Generation([1] * 32, 32))
    assert not scheduler.fits(Generation([1] * 32, 33))
