"""A small training whose batches vary in length, compiled or not.

python -m benchmarks.recompilation.training KIND [--backend aot_eager] [--steps 120] [--every 6]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FEATURES, BATCH, SHORTEST, GROWTH = 48, 8, 32, 8
KINDS = ("uncompiled", "one_length", "dynamic", "lengths", "limit", "breaks")
"""Not compiled; compiled once; lengths that torch makes dynamic; a compilation for each length; more lengths than torch's limit;
code that is compiled in two pieces, for each length."""
_HIGH_LIMIT = 256


class Lengths(IterableDataset[torch.Tensor]):
    """Batches, of which the length grows after every so many."""

    def __init__(self, steps: int, every: int) -> None:
        self._steps, self._every = steps, every

    def __iter__(self) -> Iterator[torch.Tensor]:
        for step in range(self._steps):
            yield torch.randn(BATCH, SHORTEST + GROWTH * (step // self._every), FEATURES)


class Mixer(nn.Module):
    """Mixes the positions of a sequence: what is compiled knows its length."""

    def __init__(self, layers: int = 3, *, breaks: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(layers))
        self.breaks = breaks

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return a number for each sequence of a batch, shape (batch,)."""
        values = inputs
        for layer in self.layers:
            weights = torch.softmax(values @ values.transpose(1, 2), dim=-1)
            values = torch.tanh(layer(weights @ values)) + values
        if self.breaks:
            torch._dynamo.graph_break()
        return values.mean(dim=(1, 2))


def compiled(kind: str, backend: str, limit: int = 0) -> Any:
    """Return the model as it is to be called.

    Args:
        limit: of compilations of one code; 0: torch's own.
    """
    model = Mixer(breaks=kind == "breaks")
    if kind == "uncompiled":
        return model
    if limit or kind in ("lengths", "breaks"):
        torch._dynamo.config.recompile_limit = limit or _HIGH_LIMIT
    return torch.compile(model, backend=backend, dynamic=None if kind == "dynamic" else False)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recompilation.training", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--backend", default="aot_eager", help="of torch.compile")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--every", type=int, default=6, help="steps of one length")
    parser.add_argument("--limit", type=int, default=0, help="compilations of one code; 0: torch's own limit")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = compiled(options.kind, options.backend, options.limit)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    every = options.steps if options.kind == "one_length" else options.every
    for batch in DataLoader(Lengths(options.steps, every), batch_size=None):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
