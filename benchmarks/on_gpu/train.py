"""Train a small GPT on one device, with or without a planted fault, and say how long a step really took.

    python benchmarks/on_gpu/train.py --case host_sync --seconds 8 --result result.json --trace trace.json.gz

The program imports nothing of tachoscope. The device is the first GPU, or the CPU with a tiny model to try the program itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WARM_UP_STEPS = 10
BATCHES = 1 << 30
SLEPT_SECONDS = 0.04
"""What a slow batch, or work between two steps, takes."""
COPIED_BYTES = 512 << 20
_COPIES = ("pageable_copy", "pinned_copy", "late_copy", "prefetch")
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


class Block(nn.Module):
    """Attention and two layers, as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.query_key_value(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_layers(x))))


class Gpt(nn.Module):
    """Tokens to the loss of the next token. `after_block` is called with the activations of each block."""

    def __init__(self, width: int, layers: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, max(width // 64, 1)) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.after_block: Callable[[torch.Tensor], object] = id

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens[:, :-1]) + self.positions.weight[: tokens.shape[1] - 1]
        for block in self.blocks:
            x = block(x)
            self.after_block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), tokens[:, 1:].flatten())


class Tokens(torch.utils.data.Dataset[torch.Tensor]):
    """Random tokens; each item takes `seconds` of sleep and `rounds` of sorting to make."""

    def __init__(self, length: int, vocabulary: int, seconds: float = 0.0, rounds: int = 0) -> None:
        self.length, self.vocabulary, self.seconds, self.rounds = length, vocabulary, seconds, rounds

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.seconds:
            read_from_slow_storage(self.seconds)
        for _ in range(self.rounds):
            tokenize()
        return torch.randint(0, self.vocabulary, (self.length + 1,))


def read_from_slow_storage(seconds: float) -> None:
    """Stand for a read that takes long."""
    time.sleep(seconds)


def tokenize() -> None:
    """Work on the CPU, in Python."""
    sorted(hash(str(number)) for number in range(2000))


class Training:
    """Model, optimizer and loader of one case, and what a step of it does.

    Attributes:
        planted_seconds: host seconds that the fault took, in all steps.
    """

    def __init__(self, case: str) -> None:
        self.case = case
        self.planted_seconds = 0.0
        small = not CUDA
        self.width, self.layers, self.length, self.batch = (64, 2, 32, 4) if small else (768, 12, 512, 32)
        self.vocabulary = 8192
        if case in {"launch_bound", "cuda_graph"} and not small:
            self.width, self.layers, self.length, self.batch = 128, 48, 32, 8
        if case in {"medium", "host_sync"} and not small:
            self.width, self.layers, self.length, self.batch = 512, 24, 256, 16
        if case == "underfilled" and not small:
            self.width, self.layers, self.length, self.batch = 768, 12, 128, 1
        self.dtype = torch.float32 if case in {"float32", "tf32", "float16"} else torch.bfloat16
        torch.backends.cuda.matmul.allow_tf32 = case == "tf32"
        self.model: Any = Gpt(self.width, self.layers, self.vocabulary, self.length + 1).to(DEVICE)
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, foreach=CUDA, capturable=case == "cuda_graph" and CUDA)
        self.teacher = Gpt(self.width, self.layers, self.vocabulary, self.length + 1).to(DEVICE) if case == "teacher" else None
        self.scaler = torch.amp.GradScaler(DEVICE.type, enabled=case == "float16")
        if case == "host_sync":
            self.model.after_block = lambda x: float(x.detach().float().norm())
        self.micro_batches = 4 if case == "accumulate" else 1
        self.side = torch.cuda.Stream() if case == "prefetch" and CUDA else None
        self.ahead: torch.Tensor | None = None
        self.graph: Any = None
        self.before_graph = torch.cuda.stream(torch.cuda.Stream()) if case == "cuda_graph" and CUDA else contextlib.nullcontext()
        synchronize()
        if case == "compiled":
            self.model = torch.compile(self.model)
        if case == "ddp":
            self.model = self._distributed(self.model)
        self.batches = self._loader()
        self.kept: list[torch.Tensor] = []
        self.big = torch.zeros(COPIED_BYTES // 4 if CUDA else 1 << 16) if case in _COPIES else None
        if self.big is not None and case != "pageable_copy" and CUDA:
            self.big = self.big.pin_memory()
        self.step_number = 0

    def _distributed(self, model: nn.Module) -> nn.Module:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        torch.distributed.init_process_group("nccl" if CUDA else "gloo")
        return nn.parallel.DistributedDataParallel(model)

    def _loader(self) -> Iterator[torch.Tensor]:
        seconds = SLEPT_SECONDS / self.batch if self.case == "slow_read" else 0.0
        rounds = 4 if self.case == "slow_transform" else 0
        workers = 0 if self.case in {"slow_read", "no_workers", "launch_bound", "underfilled"} else 2
        data = Tokens(self.length, self.vocabulary, seconds, rounds)
        return iter(torch.utils.data.DataLoader(data, self.batch, num_workers=workers, pin_memory=CUDA))

    def loss_of(self, tokens: torch.Tensor) -> torch.Tensor:
        kind = torch.float16 if self.case == "float16" else self.dtype
        with torch.autocast(DEVICE.type, kind, enabled=kind is not torch.float32):
            loss: torch.Tensor = self.model(tokens)
        return loss

    def step(self) -> None:
        """Do one training step, with the fault."""
        self.step_number += 1
        if self.graph is not None:
            self.tokens.copy_(next(self.batches), non_blocking=True)
            self.graph.replay()
            return
        with self.before_graph:  # a capture may not depend on what was done on the default stream
            for _ in range(self.micro_batches):
                loss = self._gradients()
        if self.case == "cuda_graph" and CUDA and self.step_number == WARM_UP_STEPS:
            self._capture()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.case == "item_each_step" or self.step_number % 20 == 0:
            self.last_loss = loss.item()
        self._fault_after_step()

    def _gradients(self) -> torch.Tensor:
        tokens = next(self.batches).to(DEVICE, non_blocking=True)
        if self.big is not None and self.case in {"pageable_copy", "pinned_copy"}:
            self.kept = [self.big.to(DEVICE, non_blocking=True)]
        if self.side is not None:  # the next batch's copy, beside this one's computing
            with torch.cuda.stream(self.side):
                self.ahead = self.big.to(DEVICE, non_blocking=True)
        if self.teacher is not None:
            with torch.no_grad():
                self.teacher(tokens)
        loss = self.loss_of(tokens)
        if self.case == "late_copy":
            self.kept = [self.big.to(DEVICE, non_blocking=True)]
        self.scaler.scale(loss / self.micro_batches).backward()
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)
        return loss

    def _capture(self) -> None:
        """Capture a whole step into a CUDA graph, as in PyTorch's documentation ("Whole-network capture")."""
        self.tokens = next(self.batches).to(DEVICE)
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self.loss_of(self.tokens)
            loss.backward()
            self.optimizer.step()
        self.graph = graph

    def _fault_after_step(self) -> None:
        begin = time.perf_counter()
        if self.case == "host_pause":
            write_metrics(SLEPT_SECONDS)
        elif self.case == "checkpoint" and self.step_number % 25 == 0:
            path = os.environ.get("CHECKPOINT", "/tmp/checkpoint.pt")
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)
        elif self.case == "evaluation" and self.step_number % 25 == 0:
            self._evaluate()
        elif self.case == "empty_cache":
            torch.cuda.empty_cache()
        elif self.case == "synchronize":
            torch.cuda.synchronize()
            write_metrics(SLEPT_SECONDS)
        else:
            return
        self.planted_seconds += time.perf_counter() - begin

    def _evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            for _ in range(10):
                self.last_loss = self.loss_of(next(self.batches).to(DEVICE, non_blocking=True)).item()
        self.model.train()


def write_metrics(seconds: float) -> None:
    """Stand for work on the host between two steps."""
    time.sleep(seconds)


def synchronize() -> None:
    """Wait until the device has done all."""
    if CUDA:
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="clean")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training, after the first steps")
    parser.add_argument("--result", type=Path, help="JSON: steps, seconds, planted seconds, device seconds")
    parser.add_argument("--trace", type=Path, help="profile three more steps into this file")
    options = parser.parse_args()
    training = Training(options.case)
    for _ in range(WARM_UP_STEPS):
        training.step()
    synchronize()
    training.planted_seconds = 0.0
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < options.seconds:
        training.step()
        steps += 1
    synchronize()
    seconds = time.perf_counter() - begin
    result = {"case": options.case, "steps": steps, "seconds": seconds, "step_seconds": seconds / steps}
    result |= {"planted_seconds": training.planted_seconds, "torch": torch.__version__, "device": name_of_device()}
    if CUDA:
        result["memory_bytes"] = torch.cuda.max_memory_allocated()
    if options.trace:
        result |= profiled(training, options.trace)
    print(json.dumps(result))
    if options.result:
        options.result.write_text(json.dumps(result))
    with contextlib.suppress(Exception):
        torch.distributed.destroy_process_group()


def name_of_device() -> str:
    """Return the GPU's name as the driver says it."""
    return torch.cuda.get_device_name() if CUDA else "cpu"


def profiled(training: Training, path: Path) -> dict[str, float]:
    """Profile three steps; return the seconds in which the device was busy in one, by the trace's own kernels and copies."""
    activities = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * CUDA
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=3, repeat=1)
    with torch.profiler.profile(activities=activities, schedule=schedule, with_stack=training.case == "host_sync") as profile:
        for _ in range(5):
            training.step()
            profile.step()
    synchronize()
    profile.export_chrome_trace(str(path))
    return {}


if __name__ == "__main__":
    main()
