"""A small decoder of Llama's build with random weights, and a paged KV cache: one forward pass takes tokens of many sequences.

What is not attention sees all tokens as one batch. Attention is one call for each sequence that brings several tokens, and one for
all that bring a single token and are of about the same length, padded to the longest of them. No tokeniser, no sampling: the next
token is the likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu


@dataclass(frozen=True, slots=True)
class Shape:
    """`width` is `heads` times an even number."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    vocabulary: int = 2048
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence brings to a forward pass.

    Attributes:
        tokens: the next of its tokens that are not in the cache yet. first: position of the first of these.
        slots: where the cache holds it: of each position up to the last of these tokens.
    """

    tokens: Sequence[int]
    first: int
    slots: Sequence[int]


class TinyLlama:
    """Weights and KV cache.

    Args:
        cache_tokens: slots of the cache, one for each token of a sequence. seed: of the weights.
    """

    def __init__(self, shape: Shape, cache_tokens: int, seed: int = 0) -> None:
        randomly = torch.Generator().manual_seed(seed)
        width, self.shape, self.head_width = shape.width, shape, shape.width // shape.heads

        def weights(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=randomly, dtype=torch.float64).to(shape.dtype) / columns**0.5

        self.embedding = weights(shape.vocabulary, width) * width**0.5
        self.layers = [
            (weights(3 * width, width), weights(width, width), weights(4 * width, width), weights(width, 2 * width))
            for _ in range(shape.layers)
        ]
        self.head = weights(shape.vocabulary, width)
        self.keys = torch.zeros(shape.layers, cache_tokens, shape.heads, self.head_width, dtype=shape.dtype)
        self.values = torch.zeros_like(self.keys)
        self.frequencies = 10000.0 ** -(torch.arange(0, self.head_width, 2, dtype=torch.float64) / self.head_width)

    @torch.inference_mode()
    def forward(self, parts: Sequence[Part]) -> list[int]:
        """Put the tokens into the cache and return the likeliest token after the last one of each part."""
        ordered = sorted(parts, key=_group)
        tokens = torch.tensor([token for part in ordered for token in part.tokens])
        spans = [range(part.first, part.first + len(part.tokens)) for part in ordered]
        positions = torch.tensor([position for span in spans for position in span])
        slots = torch.tensor([part.slots[position] for part, span in zip(ordered, spans, strict=True) for position in span])
        looks = _Looks(ordered)
        angles = torch.outer(positions.double(), self.frequencies)
        turns = angles.cos().to(self.shape.dtype)[:, None], angles.sin().to(self.shape.dtype)[:, None]
        hidden = self.embedding[tokens]
        for number, (inputs, outputs, up, down) in enumerate(self.layers):
            queries, keys, values = linear(_norm(hidden), inputs).unflatten(1, (3, self.shape.heads, -1)).unbind(1)
            self.keys[number, slots] = _turned(keys, *turns)
            self.values[number, slots] = values
            attended = looks.attend(_turned(queries, *turns), self.keys[number], self.values[number])
            hidden = hidden + linear(attended.flatten(1), outputs)
            gate, value = linear(_norm(hidden), up).chunk(2, dim=1)
            hidden = hidden + linear(silu(gate) * value, down)
        last = torch.tensor([len(part.tokens) for part in ordered]).cumsum(0) - 1
        likeliest = linear(_norm(hidden[last]), self.head).argmax(1).tolist()
        by_part = dict(zip(map(id, ordered), likeliest, strict=True))
        return [by_part[id(part)] for part in parts]


def _group(part: Part) -> int:
    """Return the power of two up to which it sees, of a part of a single token; a larger number of a longer part."""
    return len(part.slots).bit_length() if len(part.tokens) == 1 else 1000


class _Looks:
    """Which slots of the cache each token looks at, the same in all layers; the parts are in the order of `_group`."""

    def __init__(self, ordered: Sequence[Part]) -> None:
        self.singles, self.longer = [], []
        for _, group in groupby((part for part in ordered if len(part.tokens) == 1), _group):
            slots = [part.slots for part in group]
            longest = max(map(len, slots))
            table = torch.tensor([[*mine, *[0] * (longest - len(mine))] for mine in slots])
            inside = torch.arange(longest) < torch.tensor([len(mine) for mine in slots])[:, None]
            self.singles.append((table, inside[:, None, None]))
        for part in (part for part in ordered if len(part.tokens) > 1):
            positions = torch.arange(part.first, part.first + len(part.tokens))
            causal = torch.arange(len(part.slots)) <= positions[:, None]
            self.longer.append((len(part.tokens), torch.tensor(part.slots), causal))

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return what the tokens see; `queries`: tokens, heads, head width; `keys` and `values`: slots, heads, head width."""
        found, start = [], 0
        for table, inside in self.singles:
            mine = queries[start : start + len(table), :, None]
            seen = scaled_dot_product_attention(mine, keys[table].transpose(1, 2), values[table].transpose(1, 2), inside)
            found.append(seen[:, :, 0])
            start += len(table)
        for count, slots, causal in self.longer:
            mine = queries[start : start + count].transpose(0, 1)
            seen = scaled_dot_product_attention(mine, keys[slots].transpose(0, 1), values[slots].transpose(0, 1), causal)
            found.append(seen.transpose(0, 1))
            start += count
        return torch.cat(found)


def _norm(hidden: Tensor) -> Tensor:
    return rms_norm(hidden, hidden.shape[-1:], eps=1e-6)


def _turned(vectors: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary position embedding: turn each pair of components by an angle that grows with the position."""
    left, right = vectors.chunk(2, dim=-1)
    return torch.cat([left * cosines - right * sines, left * sines + right * cosines], dim=-1)
