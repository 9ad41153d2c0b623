"""Continuous batching: which tokens of which sequences go into the next forward pass, and which blocks of the KV cache hold them.

Sequences are served in the order of their arrival. Each pass brings one token to each sequence whose prompt is computed, and
computes prompts: whole ones, or at most so many of their tokens as `prefill_chunk` says. When the cache is full, the youngest
sequence gives its blocks back and is computed again later (preemption by recomputation), so the oldest always gets on. Knows of
no server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tiny_llama import Part

BLOCK_TOKENS = 16


def _nobody(_: str | int | None) -> None:
    pass


@dataclass(eq=False, slots=True)
class Generation:
    """A prompt and what is generated for it.

    Attributes:
        max_tokens: it ends after so many. stop_token: or after this one.
        entered: told each state that it enters: `prefill`, `decode`, `preempted`. got: told each token of the output, and
            None if there will be no more though it has not ended.
        gone: nobody wants it any more; set by whoever asked for it, from any thread.
        computed: how many of its tokens the cache holds. ended: why it is over: `length`, `stop`.
    """

    prompt: Sequence[int]
    max_tokens: int
    stop_token: int | None = None
    entered: Callable[[str], None] = _nobody
    got: Callable[[int | None], None] = _nobody
    gone: bool = False
    output: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    preemptions: int = 0
    ended: str = ""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.output)

    @property
    def is_decoding(self) -> bool:
        """Whether only its newest token is not in the cache."""
        return bool(self.output) and self.length - self.computed == 1

    def part(self, count: int) -> Part:
        """Return its next tokens for a forward pass."""
        end = self.computed + count
        tokens = [self.output[-1]] if self.is_decoding else [*self.prompt, *self.output][self.computed : end]
        slots = [block * BLOCK_TOKENS + offset for block in self.blocks for offset in range(BLOCK_TOKENS)]
        return Part(tokens, self.computed, slots[:end])


@dataclass(frozen=True, slots=True)
class Batch:
    """A forward pass.

    Attributes:
        shares: the sequences, with how many tokens of each.
        prefill_tokens: of prompts, and of what is computed again. decode_tokens: one for each other sequence.
        preempted: sequences that lost their place since the pass before.
    """

    shares: Sequence[tuple[Generation, int]]
    prefill_tokens: int
    decode_tokens: int
    preempted: int

    @property
    def parts(self) -> list[Part]:
        return [generation.part(count) for generation, count in self.shares]


class Scheduler:
    """Who waits, who runs, and whose the blocks of the cache are; used by one thread.

    Args:
        kv_tokens: tokens that the cache holds, in whole blocks. max_batch: sequences that run at the same time.
        prefill_chunk: prompt tokens in one pass, at most; 0: whole prompts.
    """

    def __init__(self, kv_tokens: int, max_batch: int, prefill_chunk: int = 0) -> None:
        self.blocks = kv_tokens // BLOCK_TOKENS
        self.max_batch, self.prefill_chunk = max_batch, prefill_chunk
        self.free = list(range(self.blocks))
        self.waiting: deque[Generation] = deque()
        self.running: list[Generation] = []  # in the order of arrival, and all of them arrived before those that wait

    @property
    def kv_used(self) -> float:
        """Share of the cache that is in use."""
        return 1 - len(self.free) / self.blocks

    def fits(self, generation: Generation) -> bool:
        """Return whether the whole cache is enough for it."""
        return generation.length + generation.max_tokens <= self.blocks * BLOCK_TOKENS

    def plan(self) -> Batch:
        """Return the next forward pass, for which all blocks are there; without sequences if there is nothing to do."""
        self._let_go()
        shares: list[tuple[Generation, int]] = []
        prompt_room, preempted = self.prefill_chunk or self.blocks * BLOCK_TOKENS, 0
        for generation in tuple(self.running):
            if generation not in self.running:  # it made room for an older one
                break
            count = 1 if generation.is_decoding else min(generation.length - generation.computed, prompt_room)
            while not self._reserve(generation, generation.computed + count):
                preempted += 1
                if self._preempt_youngest() is generation:
                    break
            else:
                prompt_room -= 0 if generation.is_decoding else count
                shares += [(generation, count)] if count else []
        while self.waiting and not preempted and prompt_room and len(self.running) < self.max_batch:
            generation = self.waiting[0]
            if not self._reserve(generation, generation.length):
                break
            self.running.append(self.waiting.popleft())
            if not generation.preemptions:  # else it stays preempted until it is where it was
                generation.entered("prefill")
            count = min(generation.length, prompt_room)
            prompt_room -= count
            shares.append((generation, count))
        decoding = sum(generation.is_decoding for generation, _ in shares)
        return Batch(shares, sum(count for _, count in shares) - decoding, decoding, preempted)

    def finish(self, batch: Batch, tokens: Sequence[int]) -> None:
        """Hand out the tokens that a forward pass found; what is complete frees its blocks."""
        for (generation, count), token in zip(batch.shares, tokens, strict=True):
            was_decoding = generation.is_decoding
            generation.computed += count
            if generation.computed < generation.length:
                continue  # only a part of its prompt
            generation.output.append(token)
            if token == generation.stop_token or len(generation.output) >= generation.max_tokens:
                generation.ended = "stop" if token == generation.stop_token else "length"
                self.running.remove(generation)
                self._release(generation)
            elif not was_decoding:
                generation.entered("decode")
            generation.got(token)

    def _let_go(self) -> None:
        for generation in [generation for generation in self.running if generation.gone]:
            self.running.remove(generation)
            self._release(generation)
        if any(generation.gone for generation in self.waiting):
            self.waiting = deque(generation for generation in self.waiting if not generation.gone)

    def _reserve(self, generation: Generation, tokens: int) -> bool:
        lacking = -(-tokens // BLOCK_TOKENS) - len(generation.blocks)
        if lacking > len(self.free):
            return False
        generation.blocks += [self.free.pop() for _ in range(lacking)]
        return True

    def _release(self, generation: Generation) -> None:
        self.free += generation.blocks
        generation.blocks = []

    def _preempt_youngest(self) -> Generation:
        generation = self.running.pop()
        self._release(generation)
        generation.computed = 0
        generation.preemptions += 1
        generation.entered("preempted")
        self.waiting.appendleft(generation)
        return generation
