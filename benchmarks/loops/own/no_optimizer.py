"""A training loop without an optimizer object: the parameters are changed by hand."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
arguments = parser.parse_args()


def get_batch(generator):
    features = torch.randn(256, 512, generator=generator)
    return features, features.roll(1, dims=1)


def train(model, rate):
    generator = torch.Generator().manual_seed(1)
    for number in range(arguments.steps):
        features, target = get_batch(generator)
        model.zero_grad()
        output = model(features)
        loss = nn.functional.mse_loss(output, target)
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-rate)
        if number % 50 == 0:
            print(number, loss.item(), flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    train(nn.Sequential(nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 512)), 1e-3)
