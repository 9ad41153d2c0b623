"""Real faults in real training, told by name: the demo's, and those of a script written apart from it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tachoscope_cli.demo.faults import FAULTS

pytestmark = pytest.mark.alone

CULPRITS = {"input_straggler": [1], "compute_straggler": [1], "cpu_contention": [1], "checkpoint_stall": [0]}
INJECTED = Path(__file__).parents[2] / "trainings" / "injected_training.py"


def tachoscope(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tachoscope_cli.main", *words], capture_output=True, text=True, **options)


def judged(job: str) -> dict[str, Any]:
    done = tachoscope("analyze", "--job", job, "--format", "json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for ledger in report["ledgers"]:
        assert sum(ledger["states"].values()) == pytest.approx(ledger["wall_seconds"], rel=0.01)
    return report


def findings(report: dict[str, Any]) -> list[tuple[str, Any, float]]:
    return [(row["class"], row["ranks"], row["share"]) for row in report["findings"] if row["severity"] != "info"]


# 20 to 40 s of a processor each. From planted records each class is judged in `tests/analyzers`, a real straggler below, and what
# the demo prints in test_run_with_agent.
@pytest.mark.bar
@pytest.mark.parametrize("fault", FAULTS)
def test_the_demo_names_the_fault_that_it_caused(fault: str, bar_run: int) -> None:
    rarely = fault in {"none", "checkpoint_stall", "host_pause", "cpu_contention"}  # not in every step, or by chance
    done = tachoscope("demo", "--fault", fault, "--steps", "40" if rarely else "30")
    assert done.returncode == 0, done.stderr

    found = findings(judged(f"demo-{fault}"))

    if fault == "none":
        assert found == []
        assert done.stdout.endswith("no bottleneck above 10 %\n")
    else:
        assert found[0][:2] == (fault, CULPRITS.get(fault, "all")), found
        assert f"runbooks/{fault}.md" in done.stdout
    assert "store: " in done.stdout
    assert "tachoscope run -- python train.py" in done.stdout.split("next:  ")[1]


def train(tmp_path: Path, fault: str, *options: str, steps: int = 50, launcher: tuple[str, ...] = (), shell: str = "") -> None:
    data = tmp_path / "data"
    data.mkdir()
    command = [sys.executable, *launcher, str(INJECTED), fault, str(steps), str(data), *options]
    words = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "j", "--", *command]
    if shell:
        words = ["unshare", "-n", "sh", "-c", f'{shell}; exec "$@"', "sh", *words]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode == 99:
        pytest.skip("no traffic control in a network namespace here")
    assert done.returncode == 0, done.stderr


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param("none", None, marks=pytest.mark.bar),  # `make test` has the demo's
        pytest.param("data_both", ("input_workers", "all"), marks=pytest.mark.bar),
        pytest.param("compute_one", ("compute_straggler", [1]), marks=pytest.mark.bar),  # the demo has it too, as the next
        pytest.param("checkpoint", ("checkpoint_stall", [1]), marks=pytest.mark.bar),
        pytest.param("tiny", ("comm_exposed", "all"), marks=pytest.mark.bar),  # the demo of test_run_with_agent has it
    ],
)
def test_a_script_written_apart_is_judged_as_well(
    tmp_path: Path, fault: str, expected: tuple[str, Any] | None, bar_run: int
) -> None:
    train(tmp_path, fault, steps=50 if expected else 80)

    found = findings(judged("j"))

    assert (found[0][:2] if found else None) == expected, found


@pytest.mark.waits
def test_a_rank_whose_reads_are_slow_is_named(tmp_path: Path) -> None:
    """It waits and hardly computes, so that other processes of the machine do not become its first bottleneck."""
    train(tmp_path, "data_one", "--batch", "2", "--slow-seconds", "0.25", steps=20)

    assert findings(judged("j"))[0][:2] == ("input_straggler", [1])


@pytest.mark.parametrize(
    ("fault", "options", "expected"),
    [
        pytest.param("data_one", ("--rank", "0"), ("input_straggler", [0]), marks=pytest.mark.bar),
        pytest.param("data_both", ("--workers", "1"), ("input_workers", "all"), marks=pytest.mark.bar),  # two would keep up
    ],
)
def test_under_torchrun_on_the_other_rank_and_with_workers_too(
    tmp_path: Path, fault: str, options: tuple[str, ...], expected: tuple[str, Any], bar_run: int
) -> None:
    train(tmp_path, fault, *options, launcher=TORCHRUN)

    assert findings(judged("j"))[0][:2] == expected


SLOW_NETWORK = "ip link set lo up && tc qdisc add dev lo root tbf rate 400mbit burst 256kb latency 400ms 2>/dev/null || exit 99"


@pytest.mark.bar
@pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("unshare", "ip", "tc")),
    reason="needs root, unshare and iproute2 to limit a network of its own",
)
def test_a_network_of_400_mbit_is_exposed_communication(tmp_path: Path, bar_run: int) -> None:
    train(tmp_path, "large", steps=40, shell=SLOW_NETWORK)

    name, culprits, share = findings(judged("j"))[0]
    assert (name, culprits) == ("comm_exposed", "all")
    assert share > 0.5  # 8 MB each way at 400 Mbit/s, beside about 30 ms of computing
