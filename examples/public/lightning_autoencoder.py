"""Follows "Lightning in 15 minutes": https://lightning.ai/docs/pytorch/stable/starter/introduction.html
with the validation loop and the ModelCheckpoint of its next pages.

MNIST is replaced by generated images, since the machines that run this have no internet. On one process as it is; on two:
torchrun --nproc-per-node 2 lightning_autoencoder.py. Nothing here knows of tachoscope.
"""

import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn, optim, utils

encoder = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 3))
decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 28 * 28))


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return optim.Adam(self.parameters(), lr=1e-3)

    def _loss(self, batch):
        x, _ = batch
        x = x.view(x.size(0), -1)
        x_hat = self.decoder(self.encoder(x))
        return nn.functional.mse_loss(x_hat, x)


def fake_mnist(samples):
    return utils.data.TensorDataset(torch.rand(samples, 1, 28, 28), torch.randint(0, 10, (samples,)))


autoencoder = LitAutoEncoder(encoder, decoder)
train_loader = utils.data.DataLoader(fake_mnist(1280), batch_size=32, shuffle=True)
valid_loader = utils.data.DataLoader(fake_mnist(320), batch_size=32)

trainer = L.Trainer(
    accelerator="cpu",
    strategy="ddp" if "LOCAL_RANK" in os.environ else "auto",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
    max_epochs=3,
    callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=-1)],
    enable_progress_bar=False,
)
trainer.fit(model=autoencoder, train_dataloaders=train_loader, val_dataloaders=valid_loader)
print(f"global step: {trainer.global_step}")
