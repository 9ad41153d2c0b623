"""`tachoscope preflight` as it is run: on this machine, and on three hosts of which one is slow."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.lab import facilities
from benchmarks.preflight.__main__ import NEEDS

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import preflights
from tachoscope_core.storage.store import Store
from tachoscope_preflight import busy, storage
from tachoscope_preflight.repeat import Effort, repeated
from tachoscope_preflight.together.places import Seat, seat
from trying import each

SHORT = """
from tachoscope_preflight import node
from tachoscope_preflight.repeat import Effort, repeated
node.QUICK = Effort(0.01, 3)
from tachoscope_cli.main import main
main()
"""
"""The command with repetitions that are shorter still: how fast this machine is does not matter here."""


def test_a_rate_below_the_nominal_one_refuses_the_host_after_three_rounds_and_leaves_only_its_result(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    words = [
        "preflight",
        "--quick",
        "--force",
        "--format",
        "json",
        "--store",
        str(tmp_path / "store"),
        "--storage",
        str(tmp_path / "disk"),
    ]
    least = ["--least", "loopback_bytes_per_second=1e15", "--least", "memory_copy_bytes_per_second=1"]

    done = subprocess.run([sys.executable, "-c", SHORT, *words, *least], capture_output=True, text=True, check=False)

    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    by_name = {one["name"]: one for one in found["measurements"]}
    refused, fit, unknown = (
        by_name[f"{name}_per_second"] for name in ("loopback_bytes", "memory_copy_bytes", "storage_write_bytes")
    )
    assert (refused["verdict"], refused["rounds"]) == ("unfit", 3)
    assert (fit["verdict"], fit["rounds"]) == ("fit", 1)
    assert unknown["verdict"] == "not judged"
    assert (found["verdict"], found["hosts"][0]["host"]) == ("unfit", socket.gethostname())
    assert list((tmp_path / "disk").iterdir()) == []
    [stored] = preflights.read_all(Store(str(tmp_path / "store")), [])
    assert {one.name for one in stored.measurements} == set(by_name)


@pytest.mark.bar  # other tests beside it slow all its hosts, which share two cores, and it says so
@pytest.mark.skipif(bool(facilities.why_not(NEEDS)), reason="hosts need network namespaces and control groups")
def test_of_three_hosts_the_one_that_sends_slowly_is_named_by_its_pairs_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.preflight", "--kind", "send_slow", "--folder", str(tmp_path)]

    subprocess.run(command, check=True, env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)

    run = json.loads((tmp_path / "runs.jsonl").read_text())
    assert (run["named"], run["right"]) == (["host1"], True), run
    assert run["codes"] == {"host0": 3, "host1": 3, "host2": 1}  # the first host's is that of all
    assert run["stored"] == {"host0": "not judged", "host1": "unfit", "host2": "not judged"}  # evidence for the life cycle of nodes


def _burn() -> None:
    for _ in itertools.count():
        pass


def test_a_host_that_others_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "_gpu_processes", list)  # whatever driver another test loaded into this process
    burning = [multiprocessing.get_context("spawn").Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in burning:
        process.start()
    try:
        with pytest.raises(TachoscopeError, match=r"other processes use .* cores .*--force"):
            while True:  # until they have started
                busy.refuse_if_busy(busy.Look())
    finally:
        for process in burning:
            process.kill()


def test_storage_that_is_not_there_is_misuse_and_a_right_that_is_missing_is_no_fault_of_the_node(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="is not a directory"):
        next(storage.measure(str(tmp_path / "none"), Effort(0.01, 3)))
    [found] = storage.measure("/proc/self", Effort(0.01, 3))
    assert (found.median, found.broken) == (None, False)


def test_a_bit_that_is_not_read_as_it_was_written_is_a_fault_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.preadv

    def corrupted(descriptor: int, buffers: list[bytearray], place: int) -> int:
        moved = read(descriptor, buffers, place)
        buffers[0][moved // 2] ^= place == 0
        return moved

    monkeypatch.setattr(os, "preadv", corrupted)
    found = {one.name: one for one in storage.measure(str(tmp_path), Effort(0.01, 3))}

    assert (found[storage.READ].median, found[storage.READ].broken) == (None, True)
    assert found[storage.WRITE].median


def test_repetitions_end_when_three_agree_and_else_all_are_made() -> None:
    agreeing, differing = itertools.repeat(1e9), itertools.cycle([1e9, 1.1e9])

    assert len(repeated(lambda: next(agreeing), Effort(0.4, 9))) == 3
    assert len(repeated(lambda: next(differing), Effort(0.4, 9))) == 9


@each("code", [0, 1, 2, 3, 70])
def test_the_prolog_and_the_init_container_of_the_guide_fail_only_where_something_is_unfit(code: int) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/preflight.md").read_text()
    prolog = guide.partition("```sh\n")[2].partition("```")[0]
    [container] = [json.loads(line.partition("-c, ")[2].rstrip("]")) for line in guide.splitlines() if "command: [sh, -c" in line]
    command = f"tachoscope() {{ return {code}; }}\n"

    for script in (prolog, container):
        done = subprocess.run(["sh", "-c", command + script], check=False)
        assert "tachoscope preflight" in script
        assert (done.returncode != 0) == (code == 3)


def test_a_host_finds_its_seat_by_torchrun_by_srun_or_in_the_list() -> None:
    torchrun = {
        "RANK": "1",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "29500",
    }
    srun = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "gpu[003-006]"}
    own = socket.gethostname()

    assert seat(torchrun, None, 1) == Seat(1, 2, "a", 29500, listens=False)
    assert seat(torchrun | {"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}, None, 1) == Seat(0, 2, "a", 29500, listens=False)
    assert seat(srun, None, 29531) == Seat(0, 4, "gpu003", 29531, listens=True)
    assert seat({}, f"a,{own}", 29531) == Seat(1, 2, "a", 29531, listens=False, names=("a", own))
    assert seat({}, None, 1) is None
    for environ, hosts, error in (
        (torchrun | {"LOCAL_RANK": "1"}, None, "several ranks"),
        (torchrun | {"LOCAL_WORLD_SIZE": "8"}, None, "several ranks"),
        ({}, "a,b", "is not among --hosts"),
        ({}, f"{own},{own}", "twice"),
    ):
        with pytest.raises(TachoscopeError, match=error):
            seat(environ, hosts, 1)
