"""Models of some 50 ms a step on one core, with few weights for what they compute, so that little is exchanged."""

from __future__ import annotations

import torch
from torch import nn

BATCH = 16


class Sequence(nn.Module):
    """The same layers for each token of a sequence: its time is in proportion to the sequence's length."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(32, 128), nn.Linear(128, 10)
        self.mix = nn.ModuleList(nn.Linear(128, 128) for _ in range(8))

    def forward(self, inputs: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        x = self.first(inputs)
        x = torch.relu(x if shift is None else x + shift)
        for layer in self.mix:
            x = x + torch.relu(layer(x))
        return self.head(x.mean(1))


class Convolution(nn.Module):
    """The same convolution several times over an image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mix, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 10)

    def forward(self, inputs: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        x = self.first(inputs.movedim(-1, 1))
        x = torch.relu(x if shift is None else x + shift)
        for _ in range(9):
            x = torch.relu(self.mix(x))
        return self.head(x.mean((2, 3)))


class WithBallast(nn.Module):
    """A model with more gradients to exchange, and next to nothing more to compute.

    They come last, as those of an embedding do: what is exchanged then, no computing hides.
    """

    def __init__(self, model: nn.Module, ballast_bytes: int) -> None:
        super().__init__()
        self.model = model
        self.ballast = nn.Parameter(torch.zeros(max(1, ballast_bytes // 4)))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.model(inputs, self.ballast.sum() * 1e-12)


MODELS = {"sequence": Sequence, "convolution": Convolution}


def sample_shape(model: str, scale: float) -> tuple[int, ...]:
    """Return the shape of a sample, the first dimension being the one that varies with the scale."""
    return (round(330 * scale), 32) if model == "sequence" else (round(80 * scale), 32, 3)
