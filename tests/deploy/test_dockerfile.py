"""The images, as far as they can be known without Docker: what the Dockerfile says, and what its commands really install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from pathlib import Path

import pytest

from contained import CAN_CONTAIN
from dockerfile import Build, Stage, parse
from helpers import BIN, REPOSITORY
from processes import free_port, wait_for
from rendering import CHART, DEPLOY, one, render
from tachoscope_analyzers.records.load import from_store
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store
from tachoscope_node.config.load import load

TEXT = (DEPLOY / "Dockerfile").read_text()
ARGUMENTS, STAGES = parse(TEXT)
IMAGES = ("agent", "probe")


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run([str(BIN / "hadolint"), str(DEPLOY / "Dockerfile")], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_would_find_root_and_a_package_without_version(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        TEXT.replace("USER 65532:65532", "USER root").replace("--requirement building.txt", "hatchling")
    )
    done = subprocess.run([str(BIN / "hadolint"), str(tmp_path / "Dockerfile")], capture_output=True, text=True)

    assert {"DL3002", "DL3013"} <= set(re.findall(r"DL\d+", done.stdout))


def test_every_base_is_one_full_version_of_a_slim_image_but_that_which_compiles_has_a_compiler() -> None:
    bases = {name: stage.base for name, stage in STAGES.items() if stage.base not in STAGES}

    assert bases == {"wheel": ARGUMENTS["COMPILER"], **dict.fromkeys(IMAGES, ARGUMENTS["PYTHON"])}
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", ARGUMENTS["PYTHON"])
    assert ARGUMENTS["COMPILER"] == ARGUMENTS["PYTHON"].replace("-slim", "")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_a_numbered_user_that_is_not_root_and_without_a_shell(name: str) -> None:
    stage = STAGES[name]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage.all("USER")[-1])
    assert stage.all("RUN") == []  # what is built stays in the stages before
    assert stage.words("ENTRYPOINT")[0].startswith("/")
    assert all(isinstance(word, str) for word in stage.words("CMD"))


def test_nothing_comes_from_an_address_and_no_secret_is_in_it() -> None:
    assert [instruction for stage in STAGES.values() for instruction, _ in stage.instructions if instruction == "ADD"] == []
    assert not re.search(r"https?://|index-url|trusted-host|password|token|secret", TEXT, re.IGNORECASE)


def test_the_wheel_is_built_from_all_that_it_holds() -> None:
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = [word for words in STAGES["wheel"].all("COPY") for word in words.split()[:-1]]
    missing = [path for path in (*wheel["packages"], *wheel["force-include"]) if not path.startswith(tuple(copied))]

    assert missing == []


def test_every_package_comes_with_a_hash_of_the_lock() -> None:
    commands = [part for stage in STAGES.values() for run in stage.all("RUN") for part in re.split(r"&&|;|\bdo\b", run)]
    fetching = [command for command in commands if re.search(r"\bpip\b.*\b(install|download|wheel)\b", command)]

    assert len(fetching) == 5
    for command in fetching:
        ours = "--no-index" in command or "--no-build-isolation" in command  # the wheel that is built here
        assert "--no-deps" in command
        assert ours or "--require-hashes --requirement" in " ".join(command.split())


def test_the_versions_of_project_chart_and_image_are_one() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]

    assert all(f"tachoscope-{image}:{version} " in TEXT for image in IMAGES)
    assert f'appVersion: "{version}"' in (CHART / "Chart.yaml").read_text()
    for example in (DEPLOY / "examples").glob("*.yaml"):
        assert f"image: registry.example.com/ml/tachoscope-probe:{version}\n" in example.read_text()


def test_the_chart_starts_what_the_agents_image_has() -> None:
    agent: Stage = STAGES["agent"]
    daemonset = (CHART / "templates" / "daemonset.yaml").read_text()

    assert agent.words("CMD") == ["agent", "--config", "/etc/tachoscope/agent.yaml"]
    assert "args: [agent, --config, /etc/tachoscope/agent.yaml]" in daemonset
    assert Path(agent.words("ENTRYPOINT")[0]).parent == Path("/opt/tachoscope/bin")
    assert "/opt/tachoscope/bin/python" in daemonset


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("images")
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest", str(folder / "try"), "msgspec==0.22.0"]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("no package index can be reached")
    return Build(STAGES, REPOSITORY, DEPLOY / "Dockerfile.dockerignore", folder)


@pytest.mark.bar  # half a minute of downloads; the others run the same lines in part
def test_what_the_dockerfile_installs_is_an_agent_without_torch_and_tables(build: Build, tmp_path: Path) -> None:
    tachoscope = build.root("installed") / "opt" / "tachoscope" / "bin" / "tachoscope"
    environ = {"PATH": "/nonexistent", "HOME": "/nonexistent"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(tachoscope), *words], capture_output=True, text=True, env=environ, cwd=tmp_path, check=False)

    assert "Serve one node" in run("agent", "--help").stdout
    (tmp_path / "agent.yaml").write_text("{store: 's3://bucket/x', otlp: {endpoint: 'http://127.0.0.1:4318'}, node: n}\n")
    checked = run("agent", "--config", str(tmp_path / "agent.yaml"), "--check")
    assert checked.returncode == 0, checked.stderr
    script = "import importlib.util as u, sys; print([name for name in sys.argv[1:] if u.find_spec(name)])"
    python = [str(tachoscope.with_name("python")), "-c", script]
    wanted = ["pynvml", "h2", "prometheus_client", "opentelemetry.sdk", "s3fs", "h11", "bcrypt"]
    unwanted = ["torch", "numpy", "pandas", "pyarrow", "pip", "pytest"]
    found = subprocess.run([*python, *wanted, *unwanted], capture_output=True, text=True, env=environ, check=True).stdout
    assert found.strip() == str(wanted)
    assert load(tmp_path / "agent.yaml").store_url == "s3://bucket/x"


@pytest.mark.bar  # downloads msgspec for four versions of Python
def test_the_probes_image_has_what_each_python_needs_and_no_more(build: Build) -> None:
    lib = build.root("probe") / "probe" / "lib"

    packages = {path.name for path in lib.iterdir() if not path.name.endswith(".dist-info")}
    assert packages == {"tachoscope", "tachoscope_core", "msgspec"}
    binaries = {path.name.split(".")[1].split("-")[1] for path in lib.glob("msgspec/_core.cpython-*.so")}
    assert binaries == {"311", "312", "313", "314"}
    size = sum(path.stat().st_size for path in lib.rglob("*"))
    assert size < 16 << 20  # what the examples' volume of 64 MiB has room for, four times


TRAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.ones(40, 4), batch_size=4)
for batch in loader:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
import msgspec, tachoscope
print(tachoscope.__file__, msgspec.__file__)
"""


@pytest.fixture
def users_python(tmp_path: Path) -> Path:
    """A Python with torch that knows nothing of tachoscope, as an image of the user's has it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "image")], check=True)
    site = next((tmp_path / "image" / "lib").glob("python3*/site-packages"))
    import torch

    # A folder that a .pth file names is searched, but its own .pth files, which lead to this repository, are not read.
    (site / "torch.pth").write_text(str(Path(torch.__file__).parents[1]))
    return tmp_path / "image" / "bin" / "python"


@pytest.mark.bar  # as the one before; what is placed, and by whom, is tested below
def test_a_script_that_knows_nothing_of_it_is_watched_once_the_init_container_ran(
    build: Build, users_python: Path, tmp_path: Path
) -> None:
    volume, pod = tmp_path / "volume", tmp_path / "pod"
    volume.mkdir()
    pod.mkdir()
    init = [sys.executable, str(build.root("probe") / "place.py"), str(build.root("probe") / "probe")]
    subprocess.run([*init, str(volume), str(pod)], check=True)
    environ = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    watched = {"PYTHONPATH": f"{volume}/on", "TACHOSCOPE_RUN_DIR": str(pod), "TACHOSCOPE_JOB": "resnet"}

    def train(**more: str) -> subprocess.CompletedProcess[str]:
        command = [str(users_python), "-c", TRAIN]
        return subprocess.run(command, capture_output=True, text=True, env=environ | more, cwd=tmp_path, check=False)

    assert "No module named 'tachoscope'" in train().stderr
    done = train(**watched)
    assert done.returncode == 0, done.stderr
    ours, msgspec = done.stdout.split()
    assert ours == str(volume / "lib" / "tachoscope" / "__init__.py")
    assert not msgspec.startswith(str(volume))  # what the image has wins
    (segment,) = pod.glob(f"*{spool.SEGMENT_SUFFIX}")
    lines = segment.read_text().splitlines()
    assert sum('"StepDone"' in line for line in lines) == 10
    assert all('"job":"resnet"' in line for line in lines)
    assert (pod / ".pod").exists()


@pytest.mark.bar
def test_what_a_pod_trains_is_in_the_metrics_and_the_store_of_the_agents_image(
    build: Build, users_python: Path, tmp_path: Path
) -> None:
    port, volume = free_port(), tmp_path / "volume"
    values = {"spool": f"{tmp_path}/spool", "state": f"{tmp_path}/state", "address": "127.0.0.1", "port": port}
    values |= {"collectors": {"pods": {"enabled": False}}, "config": {"node": "node-1", "flush": {"seconds": 0.5}}}
    (tmp_path / "agent.yaml").write_text(one(render(values), "ConfigMap")["data"]["agent.yaml"])
    pod = tmp_path / "spool" / "team-a_resnet-0_0f9b7a52-8b4e-4a57-9d4c-0d6b1f7a2c11"
    pod.mkdir(parents=True)
    volume.mkdir()
    init = [sys.executable, str(build.root("probe") / "place.py"), str(build.root("probe") / "probe")]
    subprocess.run([*init, str(volume), str(pod)], check=True)
    tachoscope = build.root("installed") / "opt" / "tachoscope" / "bin" / "tachoscope"
    environ = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    watched = {"PYTHONPATH": f"{volume}/on", "TACHOSCOPE_RUN_DIR": str(pod), "TACHOSCOPE_JOB": "resnet"}

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    with (tmp_path / "log").open("wb") as log:
        agent = subprocess.Popen([str(tachoscope), "agent", "--config", str(tmp_path / "agent.yaml")], env=environ, stderr=log)
    try:
        wait_for(lambda: "tachoscope_agent" in metrics())
        subprocess.run([str(users_python), "-c", TRAIN], env=environ | watched, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
        wait_for(lambda: re.search(r'^tachoscope_steps_total\{.*training_job="resnet".*\} 10(\.0)?$', metrics(), re.MULTILINE))
        wait_for(lambda: not list(pod.glob(f"*{spool.SEGMENT_SUFFIX}")))
    finally:
        agent.terminate()
        assert agent.wait(timeout=60) == 0, (tmp_path / "log").read_text()
    assert len(from_store(Store(f"{tmp_path}/state/store"), "resnet").steps) == 10


@pytest.mark.bar  # as the ones above
def test_an_image_without_msgspec_gets_ours(build: Build, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "image")], check=True)
    volume = tmp_path / "volume"
    volume.mkdir()
    init = [sys.executable, str(build.root("probe") / "place.py"), str(build.root("probe") / "probe")]
    subprocess.run([*init, str(volume), str(tmp_path)], check=True)
    environ = {"PYTHONPATH": f"{volume}/on", "TACHOSCOPE_RUN_DIR": str(tmp_path), "TACHOSCOPE_JOB": "job"}
    script = "import tachoscope\nfor _ in range(3): tachoscope.step()\nimport msgspec; print(msgspec.__file__)"
    command = [str(tmp_path / "image/bin/python"), "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)

    assert done.stdout.startswith(str(volume)), done.stderr
    (segment,) = tmp_path.glob(f"*{spool.SEGMENT_SUFFIX}")
    assert segment.read_text().count('"StepDone"') >= 2


def test_without_the_volume_python_starts_as_ever(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": "/tachoscope/on", "TACHOSCOPE_RUN_DIR": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", "print('trained')"], capture_output=True, text=True, env=environ, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


@CAN_CONTAIN
def test_the_init_container_copies_as_any_user_and_never_keeps_a_pod_from_starting() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        probe, volume, absent = (Path(folder) / name for name in ("probe", "volume", "absent"))
        (probe / "lib").mkdir(parents=True)
        (probe / "lib" / "file").write_text("x")
        volume.mkdir()
        volume.chmod(0o777)  # root's, and open to all, as an emptyDir is
        shutil.copy(DEPLOY / "probe" / "place.py", folder)

        def as_any_user(*words: str | Path) -> subprocess.CompletedProcess[str]:
            rights = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
            python = os.path.realpath(sys.executable)
            return subprocess.run([*rights, python, *map(str, words)], capture_output=True, text=True, check=False)

        def place(target: Path, directory: Path) -> subprocess.CompletedProcess[str]:
            return as_any_user(f"{folder}/place.py", probe, target, directory)

        if as_any_user("--version").returncode:
            pytest.skip("another user cannot run this Python")
        good = place(volume, volume)
        assert (good.returncode, good.stderr) == (0, "")
        assert (volume / "lib" / "file").stat().st_mode & 0o777 == 0o644
        assert (volume / ".pod").exists()
        bad = place(absent, Path(folder))
        assert bad.returncode == 0
        assert len(bad.stderr.splitlines()) == 2
        assert "the job runs without it" in bad.stderr
