"""A training loop with LBFGS: forward and backward are in a closure that the optimizer calls several times a step."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
arguments = parser.parse_args()


def get_batch(generator):
    features = torch.randn(512, 256, generator=generator)
    return features, features.sin()


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)
    for number in range(arguments.steps):
        features, target = get_batch(generator)

        def closure():
            optimizer.zero_grad()
            output = model(features)  # noqa: B023
            loss = nn.functional.mse_loss(output, target)  # noqa: B023
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if number % 50 == 0:
            print(number, float(loss), flush=True)


if __name__ == "__main__":
    main()
