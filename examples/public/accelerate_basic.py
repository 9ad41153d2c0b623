"""Follows Accelerate's basic loop and its guides for gradient accumulation and for saving:
https://huggingface.co/docs/accelerate/basic_tutorials/migration
https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation
https://huggingface.co/docs/accelerate/usage_guides/checkpoint

On one process as it is; on two: torchrun --nproc-per-node 2 accelerate_basic.py (or accelerate launch). The data is
generated. Nothing here knows of tachoscope.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
x = torch.linspace(-1, 1, 960).unsqueeze(1)
y = 2 * x + 1 + 0.1 * torch.randn_like(x)
training_dataloader = DataLoader(TensorDataset(x[:640], y[:640]), batch_size=16, shuffle=True)
eval_dataloader = DataLoader(TensorDataset(x[640:], y[640:]), batch_size=16)

model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
loss_function = torch.nn.MSELoss()

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model, optimizer, training_dataloader, eval_dataloader, scheduler = accelerator.prepare(
    model, optimizer, training_dataloader, eval_dataloader, scheduler
)

for epoch in range(3):
    model.train()
    for inputs, targets in training_dataloader:
        with accelerator.accumulate(model):
            outputs = model(inputs)
            loss = loss_function(outputs, targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    model.eval()
    total, count = 0.0, 0
    for inputs, targets in eval_dataloader:
        with torch.no_grad():
            outputs = model(inputs)
        outputs, targets = accelerator.gather_for_metrics((outputs, targets))
        total += loss_function(outputs, targets).item() * len(outputs)
        count += len(outputs)
    accelerator.print(f"epoch {epoch}: eval loss {total / count:.4f} over {count} samples")
    accelerator.save_state(f"checkpoint_{epoch}")

accelerator.wait_for_everyone()
accelerator.save_model(model, "final_model")
accelerator.end_training()
