"""A small training with a run of an experiment tracker: `tracked_training.py mlflow|wandb|late`."""

from __future__ import annotations

import sys

import torch


def train() -> None:
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(512, 256)).square().mean().backward()
        optimizer.step()


if sys.argv[1] == "wandb":
    import wandb

    with wandb.init(project="example", settings=wandb.Settings(silent=True, x_disable_stats=True)) as run:
        print("run", run.id)
        train()
else:
    import mlflow

    if sys.argv[1] == "late":
        train()
    with mlflow.start_run() as run:
        print("run", run.info.run_id)
        if sys.argv[1] != "late":
            train()
