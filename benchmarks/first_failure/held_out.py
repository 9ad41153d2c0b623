"""A rank of a small training with a planted fault on which the judge was not developed: torchrun ... held_out.py FAULT FOLDER.

As in `rank.py`, the line at which a fault strikes ends with a comment `fault:` and its name.
"""

import datetime
import os
import queue
import resource
import signal
import sys
import threading
import time
from pathlib import Path

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MINE = RANK == WORLD - 1
STEPS, FAULT_STEP = 14, 6
TIMEOUT_SECONDS = 6.0

if FAULT == "rank_0_dies_at_import" and RANK == 0:
    from json import no_such_name  # noqa: F401  # fault: rank_0_dies_at_import

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import record  # noqa: E402

torch.set_num_threads(1)


def collate(samples):
    if FAULT == "collate_asserts" and MINE:
        lengths = [len(sample) for sample in samples]
        assert lengths[0] == 17, f"samples of {lengths[0]} values"  # fault: collate_asserts
    return torch.stack(samples)


def load(model):
    if FAULT == "tokenizer_missing" and MINE:
        (FOLDER / "tokenizer.json").read_bytes()  # fault: tokenizer_missing
    if FAULT == "checkpoint_of_other_shape" and MINE:
        other = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 1))
        model.load_state_dict(other.state_dict())  # fault: checkpoint_of_other_shape
    if FAULT == "text_not_utf8" and MINE:
        path = FOLDER / "shard.txt"
        path.write_bytes(b"a sample\n\xff\xfe\n")
        path.read_text(encoding="utf-8")  # fault: text_not_utf8
    dist.barrier()


def check_gradient(gradient):
    raise RuntimeError("gradient has no finite norm")  # fault: backward_hook_raises


def parse(tree):
    return [parse(branch) for branch in tree] if isinstance(tree, tuple) else parse((tree,))  # fault: recursion_error


@torch.compile(backend="eager")
def scaled(batch):
    weight = torch.ones(3, 17)
    return batch @ weight  # fault: compiled_function_fails


def fetch_in_thread(batches):
    for number in range(STEPS):
        if number == FAULT_STEP:
            print("no more shards", file=sys.stderr)
            sys.exit(3)  # fault: exit_in_thread
        batches.put(number)


def save(model):
    if FAULT == "quota_at_checkpoint" and MINE:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        torch.save(torch.zeros(1 << 20), FOLDER / "checkpoint.pt")  # fault: quota_at_checkpoint
    dist.barrier()


def evaluate():
    """Rank 0 is busy alone, the last one fails and takes its time to clean up, and the others wait for both."""
    if RANK == 0:
        ends = time.monotonic() + 3 * TIMEOUT_SECONDS
        while time.monotonic() < ends:
            time.sleep(0.1)
    if MINE:
        try:
            raise ValueError("sample 40 has no label")  # fault: raises_during_evaluation
        finally:
            time.sleep(TIMEOUT_SECONDS + 4.0)
    dist.barrier()


def step_fault(model, batch):
    """Faults that strike within a step of the rank at fault."""
    if FAULT == "interrupted":
        signal.raise_signal(signal.SIGINT)  # fault: interrupted
    elif FAULT == "recursion_error":
        parse("leaf")
    elif FAULT == "compiled_function_fails":
        scaled(batch)
    elif FAULT == "backward_hook_raises":
        model[0].weight.register_hook(check_gradient)
        model(batch).square().mean().backward()


@record
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS))
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
    load(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    samples = [torch.full((16,), float(index % 7)) for index in range(STEPS * 8)]
    workers = 1 if FAULT == "collate_asserts" else 0
    batches = queue.Queue()
    if FAULT == "exit_in_thread" and MINE:
        threading.Thread(target=fetch_in_thread, args=(batches,), daemon=True).start()
    for step, batch in enumerate(torch.utils.data.DataLoader(samples, batch_size=8, num_workers=workers, collate_fn=collate)):
        if FAULT == "exit_in_thread" and MINE:
            batches.get()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        if MINE and step == FAULT_STEP:
            step_fault(model, batch)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.02)
        if step == FAULT_STEP + 2:
            save(model)
            if FAULT == "raises_during_evaluation":
                evaluate()


if __name__ == "__main__":
    main()
