"""A GAN on vectors: two models, two optimizers, three backward passes in one iteration."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()


def get_batch(generator):
    return torch.randn(256, 256, generator=generator).cumsum(dim=1)


def train(generator, discriminator, optimizer_g, optimizer_d):
    random = torch.Generator().manual_seed(1)
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(256, 1), torch.zeros(256, 1)
    for number in range(arguments.steps):
        real = get_batch(random)
        optimizer_d.zero_grad()
        fake = generator(torch.randn(256, 64))
        loss_d = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()
        if number % 50 == 0:
            print(number, loss_d.item(), loss_g.item(), flush=True)


def main():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256))
    discriminator = nn.Sequential(nn.Linear(256, 1024), nn.LeakyReLU(), nn.Linear(1024, 1024), nn.LeakyReLU(), nn.Linear(1024, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-4)
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-4)
    train(generator, discriminator, optimizer_g, optimizer_d)


if __name__ == "__main__":
    main()
