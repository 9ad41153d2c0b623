"""Pipeline parallel training of an MLP on two stages or more, with torch.distributed.pipelining.

    tachoscope run --job pipeline -- torchrun --standalone --nproc-per-node 2 examples/pipeline.py
    tachoscope analyze --job pipeline

The report holds the ranks' waiting against the bubble of even stages, (p - 1)/(v m) of their work: p stages, m micro-batches,
v chunks of the model on each. `--micro-batches 8` halves it, and so does `--chunks 2`, an interleaved schedule.
`--fault stage_imbalance`: the last stage has most of the layers, and the others wait for it. Without tachoscope it trains alike.
"""

from __future__ import annotations

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.utils.data import DataLoader, TensorDataset

LAYERS = 16
ROWS, WIDTH = 128, 384
"""Of the samples of a micro-batch."""


def layers_of(parts: int, fault: str) -> list[int]:
    """Return how many layers each part of the model has, in their order."""
    each = LAYERS // parts if fault == "none" else LAYERS // parts // 2
    return [each] * (parts - 1) + [LAYERS - each * (parts - 1)]


def build(rank: int, ranks: int, options: argparse.Namespace) -> tuple[nn.ModuleList, Schedule1F1B | ScheduleInterleaved1F1B]:
    """Return this rank's parts of the model, and what moves micro-batches through all of them: part n is on rank n modulo p."""
    layers = layers_of(ranks * options.chunks, options.fault)
    model, stages = nn.ModuleList(), []
    for part in range(rank, len(layers), ranks):
        model.append(nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(layers[part]))))
        stages.append(PipelineStage(model[-1], part, len(layers), torch.device("cpu")))
    if options.chunks == 1:
        return model, Schedule1F1B(stages[0], options.micro_batches, loss_fn=nn.functional.mse_loss)
    return model, ScheduleInterleaved1F1B(stages, options.micro_batches, loss_fn=nn.functional.mse_loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--micro-batches", type=int, default=4, help="m of a step")
    parser.add_argument("--chunks", type=int, default=1, help="v parts of the model on each rank, in turn")
    parser.add_argument("--fault", choices=["none", "stage_imbalance"], default="none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    with contextlib.suppress(ImportError):
        import tachoscope

        tachoscope.describe(layout={"pp": ranks})

    model, schedule = build(rank, ranks, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    torch.manual_seed(0)  # the first rank has the inputs, the last one what they are to become: the inputs again
    data = TensorDataset(torch.randn(options.steps * options.micro_batches * ROWS, WIDTH))
    for step, (batch,) in enumerate(DataLoader(data, batch_size=options.micro_batches * ROWS), start=1):
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        given = {"target": batch, "losses": losses} if rank == ranks - 1 else {}
        schedule.step(*([batch] if rank == 0 else []), **given)
        optimizer.step()
        if losses and step % 20 == 0:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
