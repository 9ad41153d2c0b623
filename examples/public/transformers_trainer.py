"""Follows "Fine-tuning" with the Trainer of Hugging Face: https://huggingface.co/docs/transformers/training

A classifier with random weights, of two layers, and a generated data set, since the machines that run this have no internet.
On one process as it is; on two: torchrun --nproc-per-node 2 transformers_trainer.py. Nothing here knows of tachoscope.
"""

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class ReviewDataset(torch.utils.data.Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(size)
        self.input_ids = torch.randint(5, 200, (size, 32), generator=generator)
        self.labels = (self.input_ids[:, 0] > 100).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        ids = self.input_ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.labels[index]}


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


config = BertConfig(
    vocab_size=200,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    num_labels=2,
)
model = BertForSequenceClassification(config)

training_args = TrainingArguments(
    output_dir="yelp_review_classifier",
    eval_strategy="epoch",
    save_strategy="epoch",
    num_train_epochs=3,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=16,
    gradient_accumulation_steps=2,
    logging_steps=5,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=ReviewDataset(320),
    eval_dataset=ReviewDataset(96),
    compute_metrics=compute_metrics,
)
trainer.train()
print(f"global step: {trainer.state.global_step}")
trainer.save_model("final_model")
