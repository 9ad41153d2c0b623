"""A training loop that a Python generator feeds: no DataLoader."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
arguments = parser.parse_args()


def make_batch(generator):
    features = torch.randn(256, 512, generator=generator)
    target = features.roll(1, dims=1)
    return features, target


def batches(count):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield make_batch(generator)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 512))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for number, (features, target) in enumerate(batches(arguments.steps)):
        optimizer.zero_grad()
        output = model(features)
        loss = nn.functional.mse_loss(output, target)
        loss.backward()
        optimizer.step()
        if number % 50 == 0:
            print(number, loss.item(), flush=True)


if __name__ == "__main__":
    main()
