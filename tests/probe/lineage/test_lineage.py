from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import helpers
import tachoscope
from secret_corpus import TOKENS
from tachoscope.lineage import collect as lineage

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=5
)


@pytest.fixture(autouse=True)
def nothing_described() -> Iterator[None]:
    yield
    lineage._described.clear()
    lineage._seen.clear()
    lineage._parents.clear()


def script(monkeypatch: pytest.MonkeyPatch, path: Path, *arguments: str) -> None:
    path.write_text("pass\n")
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    monkeypatch.setattr(sys, "orig_argv", ["python", str(path), *arguments])
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(path)))


def test_a_script_without_a_repository_is_known_by_its_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(monkeypatch, tmp_path / "train.py")
    digest = hashlib.sha256(b"pass\n").hexdigest()
    assert lineage.of_this_process()["code_reference"] == f"train.py sha256:{digest}"


def test_secrets_of_command_and_environment_stay_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secrets = {name: value for name, value in TOKENS.items() if "private key" not in name}
    script(monkeypatch, tmp_path / "train.py", "--lr", "0.1", "--password", "correct horse", *secrets.values())
    for number, (name, value) in enumerate(secrets.items()):
        monkeypatch.setenv(f"NCCL_{number}", value)
        monkeypatch.setenv(f"{name.replace(' ', '_')}_KEY", value)
    monkeypatch.setenv("TACHOSCOPE_IMAGE", "registry.example.org/train:1")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    found = lineage.of_this_process()
    text = json.dumps(found)
    assert not [name for name, value in secrets.items() if value in text]
    assert "horse" not in text
    assert "--lr 0.1 --password '***'" in found["command"]
    assert "NCCL_DEBUG=INFO" in found["environment"]
    assert found["image"] == "registry.example.org/train:1"


@pytest.mark.parametrize(
    ("variables", "topology"),
    [
        ({"SLURM_TOPOLOGY_ADDR": "s0.s4.gpu-1.example.org", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"}, "s0/s4"),
        ({"SLURM_TOPOLOGY_ADDR": "gpu-1", "SLURM_TOPOLOGY_ADDR_PATTERN": "node"}, None),
        ({"TACHOSCOPE_TOPOLOGY": "zone-a/rack-7"}, "zone-a/rack-7"),
    ],
)
def test_the_switches_above_a_node_are_known_from_slurm_or_by_hand(
    variables: dict[str, str], topology: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert lineage.of_this_process().get("topology") == topology


def test_equal_hyperparameters_have_equal_hashes_in_any_order_and_with_any_secret() -> None:
    one = lineage.hyperparameters_of({"lr": 0.1, "layers": (64, 64), "hf_token": "abc", "optimizer": {"name": "adam", "eps": 1e-8}})
    two = lineage.hyperparameters_of({"optimizer": {"eps": 1e-8, "name": "adam"}, "hf_token": "xyz", "layers": [64, 64], "lr": 0.1})
    other = lineage.hyperparameters_of(
        {"optimizer": {"eps": 1e-8, "name": "adam"}, "hf_token": "xyz", "layers": [64, 64], "lr": 0.2}
    )
    assert one == two
    assert one["hyperparameters_hash"] != other["hyperparameters_hash"]
    assert json.loads(one["hyperparameters"]) == {
        "hf_token": "***", "layers": [64, 64], "lr": 0.1, "optimizer": {"eps": 1e-8, "name": "adam"}
    }  # fmt: skip


@given(st.dictionaries(st.text(), VALUES))
def test_any_hyperparameters_can_be_recorded(values: dict[str, object]) -> None:
    found = lineage.hyperparameters_of(values)
    assert found == lineage.hyperparameters_of(dict(reversed(values.items())))
    json.loads(found["hyperparameters"])


def test_values_that_json_does_not_know_are_recorded_as_text() -> None:
    found = lineage.hyperparameters_of({"path": Path("/data"), "kind": int, "tags": {"b", "a"}, "nan": float("nan")})
    assert json.loads(found["hyperparameters"]) == {"path": "/data", "kind": "<class 'int'>", "tags": ["a", "b"], "nan": "nan"}


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=4000), max_size=30))
def test_a_lineage_is_never_larger_than_a_record_can_hold(values: dict[str, str]) -> None:
    kept = lineage.capped(values)
    assert all(len(value.encode(errors="replace")) <= lineage.MAX_VALUE_BYTES for value in kept.values())
    assert sum(len((name + value).encode(errors="replace")) for name, value in kept.items()) <= lineage.MAX_BYTES
    assert all(kept[name] == value for name, value in values.items() if name in kept and len(value) < 400)


def test_what_the_job_says_goes_before_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_DATA_SNAPSHOT", "2025")
    assert lineage.of_this_process()["data_snapshot"] == "2025"
    tachoscope.describe(data_snapshot="2026", parents=["/checkpoints/base", Path("/checkpoints/b")])
    assert lineage.of_this_process()["data_snapshot"] == "2026"
    assert lineage.described_parents() == ["/checkpoints/base", "/checkpoints/b"]


def test_hyperparameters_that_the_job_describes_go_before_those_of_its_framework() -> None:
    lineage.saw_hyperparameters({"lr": 0.1})
    assert lineage.of_this_process()["hyperparameters"] == '{"lr":0.1}'
    tachoscope.describe(hyperparameters={"lr": 0.2})
    assert lineage.of_this_process()["hyperparameters"] == '{"lr":0.2}'


def test_what_is_said_late_is_known_at_the_end_and_only_that() -> None:
    tachoscope.describe(data_snapshot="2026")
    lineage.of_this_process()
    assert lineage.since_start() == {}
    tachoscope.describe(image="late:1")
    assert lineage.since_start() == {"image": "late:1"}


def test_a_run_records_its_lineage_and_the_report_shows_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(
        "import tachoscope, os\n"
        "tachoscope.describe(hyperparameters={'lr': 0.1}, parents=['/checkpoints/base'])\n"
        "for _ in range(30): sum(range(20000)); tachoscope.step()\n"
        "tachoscope.describe(data_snapshot='told late')\n"
    )
    for words in (["init", "--quiet"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.org", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=work, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=work, check=True, capture_output=True, text=True).stdout.strip()
    done = helpers.run_watched(tmp_path, sys.executable, "train.py", "--api-key", "hunter2")
    assert done.returncode == 0, done.stderr

    job = helpers.records_of(tmp_path)
    (start,) = (row for row in job.starts if row.rank == 0)
    assert start.code_reference == start.lineage["code_reference"] == f"git:{commit} train.py"
    assert start.hyperparameters_hash == lineage.hyperparameters_of({"lr": 0.1})["hyperparameters_hash"]
    assert start.parents == ["/checkpoints/base"]
    assert next(row.lineage for row in job.ends if row.rank == 0) == {"data_snapshot": "told late"}
    (launcher,) = (row for row in job.starts if row.rank < 0)
    assert launcher.lineage["launch_command"].endswith("train.py --api-key '***'")

    shown = helpers.answer(tmp_path, "analyze", "--job", "job")
    assert f"git:{commit[:12]}" in shown.stdout
    assert "told late" in shown.stdout
    assert "hunter2" not in shown.stdout
