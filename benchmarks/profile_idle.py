"""What it costs a training that it could be profiled: KINETO_USE_DAEMON=1 and an agent that answers, while nobody asks.

Three DDP trainings of two processes each (gloo, one thread a process) live at the same time, and take turns to train, in short
blocks: one with the variable set, two without it. An agent answers the first, as its page shows. In each round all three train a
block, in an order that changes; of a block count its median step and the processor seconds of rank 0, of all threads, for a step.
With the variable over without it is the cost, without it over without it the noise: the median ratio of all rounds, with a 95 %
bootstrap interval.

    python benchmarks/profile_idle.py            # print, about ten minutes
    python benchmarks/profile_idle.py --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bootstrap import bootstrap
from sections import write_section

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("generators", "servers", "support", "trainings", "node")]

from processes import AgentProcess, free_port, wait_for  # noqa: E402

WARM_STEPS, SETTLE_STEPS = 100, 3
JOBS = {"without": False, "again without": False, "with": True}
"""By name, whether KINETO_USE_DAEMON is set."""
Blocks = dict[str, list[tuple[float, float]]]
"""Of each job's blocks, wall seconds of the median step and processor seconds for a step."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--block-steps", type=int, default=40)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        train()
        return
    blocks = measure(options.rounds, options.block_steps)
    rows = [
        row(f"{what}, {name}", blocks, which, place)
        for place, what in enumerate(("median step", "processor time for a step"))
        for name, which in (("with", "with"), ("without again: the noise", "again without"))
    ]
    heads = ["| what | rounds | without | ratio | 95 % interval |", "|---|---|---|---|---|"]
    table = "\n".join([*heads, *rows])
    print(table)
    if options.write:
        write_section("profile_idle", table)


def row(name: str, blocks: Blocks, which: str, place: int) -> str:
    without = [one[place] for one in blocks["without"]]
    ratios = [one[place] / base for one, base in zip(blocks[which], without, strict=True)]
    low, high = bootstrap(ratios)
    usual = statistics.median(without) * 1e3
    return f"| {name} | {len(ratios)} | {usual:.2f} ms | {statistics.median(ratios):.4f} | {low:.4f} to {high:.4f} |"


def measure(rounds: int, steps: int) -> Blocks:
    """Return what the blocks of each job took."""
    with tempfile.TemporaryDirectory(prefix="tk") as folder, tempfile.TemporaryDirectory(prefix="tk") as sockets:
        agent = AgentProcess(Path(folder), profiles={"sockets": [sockets], "automatic": False}, flush={"seconds": 5.0})
        agent.start()
        blocks: Blocks = {name: [] for name in JOBS}
        try:
            with contextlib.ExitStack() as stack:
                jobs = {name: stack.enter_context(job(sockets if asks else "")) for name, asks in JOBS.items()}
                for one in jobs.values():
                    block(one, WARM_STEPS)
                wait_for(lambda: len(json.loads(agent.get("/v1/profiles"))["ranks"]) == 2)
                for _, order in zip(range(rounds), itertools.cycle(itertools.permutations(jobs)), strict=False):
                    for name in order:
                        blocks[name].append(block(jobs[name], steps))
                assert len(json.loads(agent.get("/v1/profiles"))["ranks"]) == 2, "the agent went on answering"
        finally:
            agent.stop()
    return blocks


@contextlib.contextmanager
def job(sockets: str) -> Iterator[subprocess.Popen[str]]:
    """Run two ranks of the training; yield the first, which takes orders."""
    asks = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": sockets, "KINETO_LOG_LEVEL": "3"} if sockets else {}
    around = {name: value for name, value in os.environ.items() if not name.startswith(("KINETO_", "TACHOSCOPE_"))} | asks
    around |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    around |= {"TORCHELASTIC_RUN_ID": "idle"}
    command = [sys.executable, __file__, "--child"]
    ranks = [
        subprocess.Popen(command, env=around | {"RANK": str(rank)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        yield ranks[0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def block(first: subprocess.Popen[str], steps: int) -> tuple[float, float]:
    """Let a job train so many steps; return the wall seconds of the median one and the processor seconds for one."""
    assert first.stdin is not None and first.stdout is not None
    first.stdin.write(f"{steps}\n")
    first.stdin.flush()
    median, processor = map(float, first.stdout.readline().split())
    return median, processor


def train() -> None:
    """Train as many steps as standard input says, line by line, and print their median and processor seconds."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = [torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(256, 256)
    while True:
        steps = torch.tensor([int(sys.stdin.readline()) if dist.get_rank() == 0 else 0])
        dist.broadcast(steps, 0)
        seconds = []
        for number in range(int(steps) + SETTLE_STEPS):
            if number == SETTLE_STEPS:
                processor = time.process_time()
            begin = time.perf_counter()
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            seconds.append(time.perf_counter() - begin)
        if dist.get_rank() == 0:
            print(statistics.median(seconds[SETTLE_STEPS:]), (time.process_time() - processor) / int(steps), flush=True)


if __name__ == "__main__":
    main()
