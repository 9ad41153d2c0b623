"""Real trainings with frameworks that save and, in the same process, continue from what they saved: `... lightning` and so on."""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


def lightning() -> None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.io import AsyncCheckpointIO

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return self.layer(batch[0]).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    def fit(steps: int, folder: str, plugins: list[AsyncCheckpointIO], ckpt_path: str | None) -> None:
        callback = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=2, save_top_k=-1)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = Trainer(max_steps=steps, accelerator="cpu", callbacks=[callback], plugins=plugins, **quiet)
        trainer.fit(Model(), DataLoader(TensorDataset(torch.rand(8, 4)), batch_size=2), ckpt_path=ckpt_path)

    fit(2, "asynchronous", [AsyncCheckpointIO()], None)
    fit(4, "plain", [], "asynchronous/step=2.ckpt")


def transformers() -> None:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Sentences(Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return {"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.tensor(index % 2)}

    config = BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)

    def train(steps: int, resume: str | None) -> None:
        arguments = TrainingArguments(
            "out", max_steps=steps, save_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True
        )
        Trainer(BertForSequenceClassification(config), arguments, train_dataset=Sentences()).train(resume_from_checkpoint=resume)

    train(2, None)
    train(4, "out/checkpoint-2")


def accelerate() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    for _ in range(2):
        accelerator.backward(model(torch.rand(2, 4)).sum())
        optimizer.step()
    accelerator.save_state("state")
    accelerator.load_state("state")


if __name__ == "__main__":
    {"lightning": lightning, "transformers": transformers, "accelerate": accelerate}[sys.argv[1]]()
