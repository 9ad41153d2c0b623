"""Small training loops, each watched as a job of its own in one process; run by test_steps.py in a process of their own.

They wait with `sleep` where a test must see to which phase time is accounted: the sleep is the lower bound of that phase.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import tachoscope

BATCHES = 6
PAUSE = 0.02

Loop = Callable[[], None]
LOOPS: list[Loop] = []


def loop(function: Loop) -> Loop:
    LOOPS.append(function)
    return function


def new_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


def batches(number: int = BATCHES, **options: object) -> DataLoader:
    data = TensorDataset(torch.rand(2 * number, 4), torch.rand(2 * number, 1))
    return DataLoader(data, batch_size=2, **options)


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def backward(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    return loss


def train_epoch(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int = BATCHES) -> None:
    for x, y in batches(number):
        backward(model, x, y)
        optimizer.step()


@loop
def plain() -> None:
    model = new_model()
    train_epoch(model, sgd(model))


@loop
def accumulation() -> None:
    model = new_model()
    optimizer = sgd(model)
    for index, (x, y) in enumerate(batches()):
        backward(model, x, y)
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()


@loop
def two_optimizers() -> None:
    discriminator, generator = new_model(), new_model()
    d_optimizer, g_optimizer = sgd(discriminator), sgd(generator)
    for x, y in batches():
        backward(discriminator, x, y)
        d_optimizer.step()
        backward(generator, x, y)
        g_optimizer.step()


@loop
def two_optimizers_without_loader() -> None:
    discriminator, generator = new_model(), new_model()
    d_optimizer, g_optimizer = sgd(discriminator), sgd(generator)
    for _ in range(BATCHES):
        x, y = torch.rand(2, 4), torch.rand(2, 1)
        backward(discriminator, x, y)
        d_optimizer.step()
        backward(generator, x, y)
        g_optimizer.step()


@loop
def lbfgs() -> None:
    model = new_model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    pauses = 0
    for x, y in batches():

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            nonlocal pauses
            optimizer.zero_grad()
            time.sleep(PAUSE)
            pauses += 1
            return backward(model, x, y)

        optimizer.step(closure)
    Path("lbfgs_pauses").write_text(str(pauses))


@loop
def without_loader() -> None:
    model = new_model()
    optimizer = sgd(model)
    for _ in range(BATCHES):
        backward(model, torch.rand(2, 4), torch.rand(2, 1))
        optimizer.step()


@loop
def one_full_batch() -> None:
    model = new_model()
    optimizer = sgd(model)
    x, y = next(iter(batches()))
    for _ in range(3 * BATCHES):
        backward(model, x, y)
        optimizer.step()


@loop
def loader_then_none() -> None:
    model = new_model()
    optimizer = sgd(model)
    train_epoch(model, optimizer)
    for _ in range(300):
        backward(model, torch.rand(2, 4), torch.rand(2, 1))
        optimizer.step()


@loop
def persistent_loader_then_none() -> None:
    model = new_model()
    optimizer = sgd(model)
    loader = batches(num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    for x, y in loader:
        backward(model, x, y)
        optimizer.step()
    for _ in range(300):
        backward(model, torch.rand(2, 4), torch.rand(2, 1))
        optimizer.step()


@loop
def optimizers_in_backward() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(120)), torch.nn.Linear(4, 1))
    optimizers = {parameter: torch.optim.SGD([parameter], lr=1e-3) for parameter in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda of: optimizers[of].step())
    for x, y in batches():
        backward(model, x, y)


@loop
def read_ahead() -> None:
    model = new_model()
    optimizer = sgd(model)
    for _ in range(2):
        iterator = iter(batches())
        ahead = next(iterator, None)
        while ahead is not None:
            batch, ahead = ahead, next(iterator, None)
            backward(model, *batch)
            optimizer.step()


@loop
def accelerate_reads_ahead() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = new_model()
    model, optimizer, loader = accelerator.prepare(model, sgd(model), batches())
    for _ in range(2):
        for x, y in loader:
            accelerator.backward(((model(x) - y) ** 2).mean())
            optimizer.step()


@loop
def inner_updates() -> None:
    model = new_model()
    optimizer = sgd(model)
    for x, y in batches():
        for _ in range(3):
            backward(model, x, y)
            optimizer.step()


@loop
def new_optimizer_without_loader() -> None:
    model = new_model()
    kept = []
    for _ in range(2):
        optimizer = sgd(model)
        kept.append(optimizer)
        for _ in range(300):
            backward(model, torch.rand(2, 4), torch.rand(2, 1))
            optimizer.step()


@loop
def explicit() -> None:
    model = new_model()
    optimizer = sgd(model)
    for x, y in batches():
        backward(model, x, y)
        optimizer.step()
        tachoscope.step(samples=2)


@loop
def explicit_for_several_updates() -> None:
    model = new_model()
    optimizer = sgd(model)
    for x, y in batches():
        for _ in range(3):
            backward(model, x, y)
            optimizer.step()
        tachoscope.step(tokens=7)


def evaluate(model: torch.nn.Module) -> None:
    for x, _ in batches(3):
        time.sleep(PAUSE)
        model(x)


@loop
def evaluation_by_mode() -> None:
    model = new_model()
    optimizer = sgd(model)
    for _ in range(3):
        model.train()
        train_epoch(model, optimizer)
        model.eval()
        with torch.no_grad():
            evaluate(model)


@loop
def evaluation_by_mode_with_gradients() -> None:
    model = new_model()
    optimizer = sgd(model)
    for _ in range(3):
        model.train()
        train_epoch(model, optimizer)
        model.eval()
        evaluate(model)


@loop
def evaluation_by_no_grad() -> None:
    model = new_model()
    optimizer = sgd(model)
    for _ in range(3):
        train_epoch(model, optimizer)
        with torch.no_grad():
            evaluate(model)


@loop
def evaluation_mode_never_left() -> None:
    model = new_model()
    optimizer = sgd(model)
    for _ in range(3):
        train_epoch(model, optimizer)
        model.eval()
        with torch.inference_mode():
            evaluate(model)


@loop
def evaluation_before_training() -> None:
    model = new_model()
    with torch.no_grad():
        evaluate(model)
    train_epoch(model, sgd(model))


@loop
def frozen_part() -> None:
    model = new_model()
    optimizer = sgd(model)
    for _ in range(2):
        model.train()
        model[0].eval()
        for x, y in batches():
            time.sleep(PAUSE)
            backward(model, x, y)
            optimizer.step()


@loop
def batches_without_gradients() -> None:
    model = new_model()
    optimizer = sgd(model)
    iterator = iter(batches())
    for _ in range(BATCHES):
        with torch.no_grad():
            x, y = next(iterator)
        backward(model, x, y)
        optimizer.step()


@loop
def checkpoint() -> None:
    model = new_model()
    optimizer = sgd(model)
    train_epoch(model, optimizer)
    torch.save(model.state_dict(), f="by_keyword.pt")
    with open("by_file.pt", "wb") as file:
        file.write(b"header")
        torch.save(model.state_dict(), file)
    with contextlib.suppress(OSError, RuntimeError):
        torch.save(model.state_dict(), "no/such/folder.pt")
    train_epoch(model, optimizer)


@loop
def checkpoint_in_safetensors() -> None:
    from safetensors.torch import save_file

    model = new_model()
    train_epoch(model, sgd(model))
    save_file(tensors=model.state_dict(), filename="keyword.safetensors")
    save_file(model.state_dict(), "position.safetensors")


@loop
def distributed_checkpoint() -> None:
    import torch.distributed.checkpoint as dcp

    model = new_model()
    train_epoch(model, sgd(model))
    dcp.save(model.state_dict(), checkpoint_id="dcp", no_dist=True)


@loop
def worker_processes() -> None:
    model = new_model()
    optimizer = sgd(model)
    loader = batches(num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    for _ in range(2):
        for x, y in loader:
            backward(model, x, y)
            optimizer.step()


@loop
def step_that_raises() -> None:
    class Raises(torch.optim.SGD):
        fail = True

        def step(self, closure: Loop | None = None) -> None:
            self.fail = not self.fail
            if self.fail:
                raise RuntimeError
            super().step(closure)

    model = new_model()
    optimizer = Raises(model.parameters(), lr=1e-3)
    for x, y in batches():
        time.sleep(PAUSE)
        backward(model, x, y)
        with contextlib.suppress(RuntimeError):
            optimizer.step()


@loop
def optimizer_on_a_base_class() -> None:
    class Derived(torch.optim.SGD):
        def step(self, closure: Loop | None = None) -> None:
            super().step(closure)

    model = new_model()
    sgd(model)  # the base class is in use, too
    optimizer = Derived(model.parameters(), lr=1e-3)
    for _ in range(BATCHES):
        backward(model, torch.rand(2, 4), torch.rand(2, 1))
        optimizer.step()


@loop
def lbfgs_over_a_loader() -> None:
    model = new_model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        return sum(backward(model, x, y) for x, y in batches())

    for _ in range(BATCHES):
        optimizer.step(closure)


@loop
def exits_in_order() -> None:
    plain()
    sys.exit(0)


@loop
def raises() -> None:
    plain()
    raise ValueError


@contextlib.contextmanager
def _any_end() -> Iterator[None]:
    with contextlib.suppress(ValueError, SystemExit):
        yield


if __name__ == "__main__":
    for function in LOOPS:
        with _any_end(), tachoscope.watch(job=function.__name__):
            function()
