"""A loop of torch that updates its parameters by itself, with no optimizer of `torch.optim`.

    tachoscope run --job plain -- python examples/without_optimizer.py

Nothing then says where a step ends: the probe counts one for each computation of gradients, and the report says so. With
`--say-steps` the loop tells it, which is right with gradient accumulation, too: here two batches make an update.
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import tachoscope

BATCHES_AN_UPDATE = 2


def main() -> None:
    parser = argparse.ArgumentParser(description="a linear model with an update by hand")
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--say-steps", action="store_true", help="call tachoscope.step() after each update")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 1)
    x = torch.randn(32 * BATCHES_AN_UPDATE * options.updates, 64)
    data = TensorDataset(x, x.sum(dim=1, keepdim=True))
    for number, (inputs, targets) in enumerate(DataLoader(data, batch_size=32), start=1):
        (torch.nn.functional.mse_loss(model(inputs), targets) / BATCHES_AN_UPDATE).backward()
        if number % BATCHES_AN_UPDATE:
            continue
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data.add_(parameter.grad, alpha=-0.1)
            parameter.grad = None
        if options.say_steps:
            tachoscope.step()
    print(f"distance from the truth: {(model.weight - 1).norm().item():.3f}")


if __name__ == "__main__":
    main()
