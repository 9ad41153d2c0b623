"""Records what the boards are tested and pictured with: two nodes with agents, trainings, servers and rules, for twelve minutes.

    python tests/dashboards/record_demo.py

Needs Prometheus, Alertmanager and node exporter of Debian, gcc, torch and uvicorn, and about a core. What is real, what is a fake
and what happens is said in recorded/README.md; the result is recorded/demo.om.gz. Rules have to be current: `make generate` first.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
FOLDERS = ("generators", "servers", "support", "node", "node/gpu", "nvml", "dashboards")
sys.path[:0] = [str(TESTS.parent), *(str(TESTS / name) for name in FOLDERS)]

from fake_kubelet import kubelet  # noqa: E402

from demo_nodes import Node, living, node  # noqa: E402
from demo_servers import watching  # noqa: E402
from fake_metadata import FakeMetadata, fake_metadata  # noqa: E402
from fake_otlp_receiver import FakeReceiver  # noqa: E402
from processes import free_port  # noqa: E402
from recorded_series import RECORDED, Series, dumped, names_in, of_names, rounded, write  # noqa: E402
from tachoscope_alerts.spec import files, policy  # noqa: E402
from tachoscope_dashboards.boards.all import boards  # noqa: E402
from tachoscope_dashboards.lint import board_json, expressions  # noqa: E402
from tachoscope_dashboards.parts.grafana_json import to_json  # noqa: E402

SECONDS = 720.0
PRETRAIN, VISION, SMOKE = "pretrain", "vision", "smoke-test"
CHAT, SUMMARIES = "chat", "summaries"
MOST_BYTES = 1_500_000


@dataclass(frozen=True, slots=True)
class Demo:
    """What a course acts on: `chat` and `summaries` are the ports of the servers, `cloud` the provider's metadata service."""

    first: Node
    second: Node
    chat: int
    summaries: int
    cloud: FakeMetadata

    def course(self) -> list[tuple[float, Callable[[], object]]]:
        """Return what happens, and after how many seconds."""
        one, two = self.first, self.second
        return [
            (0, lambda: two.serve(CHAT, self.chat, "--kv-tokens", "640")),
            (2, lambda: two.serve(SUMMARIES, self.summaries, "--max-batch", "2", "--queue-limit", "3")),
            (4, lambda: one.launch(PRETRAIN, 4, "--save-every", "100")),
            (8, lambda: two.launch(VISION, 2, "--device-seconds", "0.3", "--save-every", "250")),
            (20, lambda: two.ask("chat-clients", self.chat, *_load("3", 700, 1), "--prompt", "48", "--output", "64")),
            (20, lambda: two.ask("summaries-clients", self.summaries, *_load("0.8", 700, 2), "--prompt", "200", "--output", "24")),
            (60, lambda: one.launch(SMOKE, 1, "--steps", "40")),
            (100, lambda: (one.end(SMOKE), one.launch(SMOKE, 1, "--steps", "60", "--fail-at", "30"))),
            (120, lambda: _damage(one.folder / PRETRAIN / "shards" / "part-003")),
            (140, lambda: _flip_a_bit(two.folder / VISION / "checkpoints")),
            (150, lambda: _cause(two, VISION, "late-0", "late-1")),
            (160, lambda: one.gpus.driver.set_gpu(4, **{"ecc.corrected.volatile": 3, "ecc.corrected.aggregate": 12})),
            (170, lambda: _hot(one, 1, "slow-1")),
            (190, lambda: one.gpus.driver.event(4, 94)),
            (190, lambda: one.gpus.driver.set_gpu(4, **_UNCORRECTED)),
            (220, lambda: setattr(one.gpus.all[2], "noisy", True)),
            (250, lambda: _end(two, VISION, "late-0", "late-1")),
            (260, lambda: _cool(one, 1, "slow-1")),
            (280, lambda: _cause(one, PRETRAIN, "flip-2")),
            (292, lambda: _end(one, PRETRAIN, "flip-2")),
            (300, lambda: (two.end(CHAT), two.serve(CHAT, self.chat, "--kv-tokens", "640"))),
            (310, lambda: setattr(one.gpus.all[2], "noisy", False)),
            (330, lambda: os.kill(one.pids()[PRETRAIN, 2], signal.SIGKILL)),
            (395, lambda: _cause(one, PRETRAIN, "late-3")),
            (430, lambda: two.ask("rush", self.summaries, *_load("4", 60, 3), "--prompt", "200", "--output", "24")),
            (440, lambda: _end(one, PRETRAIN, "late-3")),
            (450, lambda: os.kill(one.pids()[PRETRAIN, 1], signal.SIGSTOP)),
            (475, lambda: os.kill(one.pids()[PRETRAIN, 1], signal.SIGCONT)),
            (520, lambda: (one.gpus.driver.event(5, 79), one.gpus.driver.set_gpu(5, lost=1))),
            (540, lambda: setattr(self.cloud, "action", {"action": "terminate", "time": _in_two_minutes()})),
            (560, two.agent.kill),
            (585, two.agent.start),
            (630, lambda: _cause(one, PRETRAIN, "late-2")),
        ]


_UNCORRECTED = {
    "ecc.uncorrected.volatile": 1,
    "ecc.uncorrected.aggregate": 1,
    "remapped.uncorrectable": 1,
    "remapped.pending": 1,
}


def _load(rate: str, seconds: int, seed: int) -> tuple[str, ...]:
    return ("--rate", rate, "--seconds", str(seconds), "--grace", "20", "--burstiness", "0.5", "--seed", str(seed))


def _cause(one: Node, job: str, *faults: str) -> None:
    for fault in faults:
        (one.faults / job / fault).touch()


def _end(one: Node, job: str, *faults: str) -> None:
    for fault in faults:
        (one.faults / job / fault).unlink()


def _hot(one: Node, gpu: int, fault: str) -> None:
    one.gpus.all[gpu].hot = True
    _cause(one, PRETRAIN, fault)


def _cool(one: Node, gpu: int, fault: str) -> None:
    one.gpus.all[gpu].hot = False
    _end(one, PRETRAIN, fault)


def _damage(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-1000])


def _flip_a_bit(checkpoints: Path) -> None:
    """Change one bit of the newest checkpoint, as a fault of the storage does: its times stay."""
    newest = sorted(checkpoints.glob("step-*.pt"))[-1]
    status, content = newest.stat(), bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    os.utime(newest, ns=(status.st_atime_ns, status.st_mtime_ns))


def _in_two_minutes() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))


# --- the recording ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[Demo]:
    """Run two nodes whose agents are there and whose jobs are not yet."""
    ranks = {rank: (PRETRAIN, rank) for rank in range(4)}
    with (
        kubelet(folder / "kubelet-1") as nobodys,
        kubelet(folder / "kubelet-2") as serving,
        fake_metadata() as cloud,
        FakeReceiver() as receiver,
    ):
        nobody = f"http://127.0.0.1:{free_port()}/metrics"
        first = node(
            folder / "node-1",
            "node-1",
            6,
            1,
            ranks,
            otlp={"endpoint": receiver.url},
            gpu={**_kubelet(nobodys.socket), "dcgm_url": nobody},
        )
        second = node(
            folder / "node-2",
            "node-2",
            4,
            2,
            {0: (VISION, 0), 1: (VISION, 1)},
            pods={2: CHAT, 3: SUMMARIES},
            gpu=_kubelet(serving.socket),
            preemption={"provider": "aws", "url": cloud.url, "interval_seconds": 5},
        )
        for gpu, service in second.pods.items():
            serving.give(second.gpus.uuid(gpu), pod=f"{service}-0", namespace="serving")
        for one, jobs in ((first, (PRETRAIN, SMOKE)), (second, (VISION,))):
            for job in jobs:
                (one.faults / job).mkdir(parents=True)
                _shards(one.folder / job / "shards")
        with living([first, second]):
            yield Demo(first, second, free_port(), free_port(), cloud)


def _kubelet(path: Path) -> dict[str, str]:
    return {"pod_resources": str(path)}


def _shards(folder: Path) -> None:
    from demo_training import write_shards

    write_shards(folder)


def play(demo: Demo, seconds: float) -> None:
    """Go through the course, a second at a time."""
    coming = demo.course()
    began = last = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        while coming and coming[0][0] <= now - began:
            coming.pop(0)[1]()
        for one in (demo.first, demo.second):
            one.play(now - last)
        last = now
        if sys.stderr.isatty():
            print(f"\r{now - began:4.0f} s of {seconds:.0f}", end="", file=sys.stderr)
        time.sleep(max(0.0, 1.0 - (time.monotonic() - now)))


def read_by_boards() -> set[str]:
    """Return the names of series that a board reads."""
    made = [to_json(board) for board in boards(policy.load(files.path_of("policy.yaml")))]
    return names_in(one.expr for board in made for one in expressions.board_expressions(board_json.dashboard(board, board["uid"])))


def anonymous(series: Series, folder: Path) -> Series:
    """Return series in which the name of this machine is that of the node whose agent told it, and its folders are usual ones."""
    here = socket.gethostname()
    found: Series = {}
    for labels, values in series.items():
        known = dict(labels)
        known = {name: known["instance"] if value == here else value for name, value in known.items()}
        known = {name: value.replace(str(folder), "/etc/prometheus") for name, value in known.items()}
        found[tuple(sorted(known.items()))] = values
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--out", type=Path, default=RECORDED)
    parser.add_argument("--keep", type=Path, help="a folder for logs and the database, which stay there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tachoscope-record-")))
        folder.mkdir(exist_ok=True)
        with machines(folder) as demo, watching(folder, {one.name: one.port for one in (demo.first, demo.second)}):
            play(demo, options.seconds)
        everything = anonymous(of_names(dumped(folder / "tsdb", "{__name__!=''}"), read_by_boards()), folder)
        write(options.out, {labels: rounded(values) for labels, values in everything.items()})
    size = options.out.stat().st_size
    samples = sum(map(len, everything.values()))
    print(f"\n{len(everything)} series, {samples} samples, {size} bytes in {options.out}")
    if size > MOST_BYTES:
        raise SystemExit(f"that is more than {MOST_BYTES} bytes")


if __name__ == "__main__":
    main()
