"""The agent under exactly the rights that the chart gives it: it does its work, and what it may not do shows."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contained import CAN_CONTAIN, can_run_python, command, run
from processes import free_port, s3_environment, s3_server, wait_for
from rendering import CHART, merged, one, profile, render
from spool_writing import Process
from tachoscope_core import yaml_text
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store

pytestmark = CAN_CONTAIN

PLACE = CHART.parents[1] / "probe" / "place.py"
POD = "team-a_resnet_0f9b7a52-8b4e-4a57-9d4c-0d6b1f7a2c11"
SECRET = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
FIELDS = {"spec.nodeName": "node-1", "metadata.name": "agent-x", "metadata.namespace": "tachoscope", "metadata.uid": "0"}


@pytest.fixture
def node() -> Iterator[Path]:
    """A folder that stands for the node's root; open to all users, as / is."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


class Pod:
    """The DaemonSet's pod of one node, with the node's directories below a folder."""

    def __init__(self, node: Path, values: dict[str, Any]) -> None:
        self.node = node
        here = {
            "spool": f"{node}/run/tachoscope",
            "state": f"{node}/var/tachoscope",
            "address": "127.0.0.1",
            "port": free_port(),
            "collectors": {"pods": {"directory": f"{node}/pod-resources"}},
            "config": {"tick_seconds": 0.1, "flush": {"seconds": 0.3}},
        }
        documents = render(merged(here, values))
        self.spec = one(documents, "DaemonSet")["spec"]["template"]["spec"]
        self.container = self.spec["containers"][0]
        self.config = node / "agent.yaml"
        self.config.write_text(one(documents, "ConfigMap")["data"]["agent.yaml"])
        self.settings = yaml_text.load(self.config.read_text())
        self.spool = Path(self.settings["spool"])
        self._make_directories()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = node / "log"

    def _make_directories(self) -> None:
        """Make them as a kubelet does: those of the node with mode 0755, an emptyDir with 0777."""
        for volume in self.spec["volumes"]:
            for mount in self.container["volumeMounts"]:
                if mount["name"] == volume["name"] and volume.keys() & {"hostPath", "emptyDir"} and mount["mountPath"] != "/tmp":
                    Path(mount["mountPath"]).mkdir(parents=True)
                    Path(mount["mountPath"]).chmod(0o777 if "emptyDir" in volume else 0o755)

    def initialise(self) -> None:
        for container in self.spec.get("initContainers", []):
            words = [sys.executable, *container["command"][1:]]
            done = run(self.spec, container, *words)
            assert (done.returncode, done.stderr) == (0, "")

    def environment(self) -> dict[str, str]:
        """Return the variables that the kubelet gives the agent, and those with which this machine finds its Python's modules."""
        environ = {name: value for name, value in os.environ.items() if name in {"PATH", "PYTHONPATH"}}
        environ |= {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
        for variable in self.container["env"]:
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                if (value := SECRET.get(source["secretKeyRef"]["key"])) is None and source["secretKeyRef"]["optional"]:
                    continue
            else:
                value = FIELDS[source["fieldRef"]["fieldPath"]] if source else variable["value"]
            assert value is not None
            environ[variable["name"]] = value
        return environ

    @contextmanager
    def running(self) -> Iterator[None]:
        words = [sys.executable, "-m", "tachoscope_cli.main", "agent", "--config", str(self.config)]
        environ = self.environment()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command(self.spec, self.container, words), stdout=log, stderr=log, env=environ)
        try:
            wait_for(lambda: "ok" in self.get("/readyz"))
            yield
        finally:
            self.process.terminate()
            assert self.process.wait(timeout=60) in (0, 1), self.log.read_text()

    def get(self, path: str) -> str:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.settings['port']}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        values = [float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics").splitlines() if line.startswith(name)]
        assert values, f"{name} is not there yet"
        return values[0]

    def user_pod(self) -> Path:
        """Make a pod's directory as the kubelet makes a subPath: root's, with the mode of the volume."""
        directory = self.spool / POD
        directory.mkdir()
        directory.chmod(self.spool.stat().st_mode & 0o7777)
        return directory

    def stored(self) -> int:
        objects = Path(self.settings["store"]).rglob("jobs/*/records/**/*.jsonl.gz")
        return sum(len(gzip.decompress(path.read_bytes()).splitlines()) for path in objects)


def train(directory: Path, user: int, steps: int = 7) -> Process:
    """Record as a rank of this user does, and end."""
    rank = Process(directory)
    os.setegid(user)
    os.seteuid(user)
    try:
        rank.start()  # the file is this user's from its first moment: the agent may look at any
    finally:
        os.seteuid(0)
        os.setegid(0)
    for path in directory.glob(f"*{spool.SEGMENT_SUFFIX}"):
        status = path.stat()
        assert (status.st_uid, status.st_mode & 0o777) == (user, 0o600)
    for _ in range(steps):
        rank.step()
    rank.end()
    return rank


def test_what_the_container_may_not_it_cannot(node: Path) -> None:
    pod = Pod(node, {})
    mine = Path(pod.settings["state"]) / "file"

    assert run(pod.spec, pod.container, "touch", str(mine)).returncode == 0
    assert "Read-only" in run(pod.spec, pod.container, "touch", f"{node}/elsewhere").stderr
    assert "Read-only" in run(pod.spec, pod.container, "touch", f"{node}/pod-resources/file").stderr
    assert "not permitted" in run(pod.spec, pod.container, "chown", "1000", str(mine)).stderr


def test_the_init_container_opens_a_fresh_spool_to_all_users_and_leaves_a_chosen_mode_alone(node: Path) -> None:
    pod = Pod(node, {})
    pod.initialise()
    assert pod.spool.stat().st_mode & 0o7777 == 0o1777
    assert pod.user_pod().stat().st_mode & 0o7777 == 0o1777

    pod.spool.chmod(0o2770)
    pod.initialise()
    assert pod.spool.stat().st_mode & 0o7777 == 0o2770


def test_root_without_capabilities_ships_what_root_recorded_and_says_what_it_cannot_read(node: Path) -> None:
    pod = Pod(node, {})
    pod.initialise()
    with pod.running():
        directory = pod.user_pod()
        rank = train(directory, user=0)
        wait_for(lambda: pod.stored() == rank.seq)
        wait_for(lambda: not list(directory.glob(f"*{spool.SEGMENT_SUFFIX}")))
        wait_for(lambda: pod.metric("tachoscope_agent_unreadable_directories") == 0)

        train(directory if directory.exists() else pod.user_pod(), user=1000)
        wait_for(lambda: pod.metric("tachoscope_agent_unreadable_directories") == 1)
        assert pod.stored() == rank.seq


def test_with_one_capability_it_ships_and_removes_what_other_users_recorded(node: Path) -> None:
    pod = Pod(node, {"collectors": {"jobs": {"otherUsers": True}}})
    pod.initialise()
    with pod.running():
        directory = pod.user_pod()
        rank = train(directory, user=1000)
        wait_for(lambda: pod.stored() == rank.seq)
        wait_for(lambda: not list(pod.spool.glob(f"*/*{spool.SEGMENT_SUFFIX}")))
        assert pod.metric("tachoscope_agent_unreadable_directories") == 0
    assert pod.process is not None
    assert pod.process.returncode == 0


def test_a_pod_records_on_after_all_that_it_recorded_was_shipped(node: Path) -> None:
    pod = Pod(node, {})
    pod.initialise()
    with pod.running():
        directory = pod.user_pod()
        subprocess.run([sys.executable, str(PLACE), str(PLACE.parent), str(node / "volume"), str(directory)], check=True)
        # The pod's container holds the directory by its mount, here by a descriptor: it never looks for its name again.
        mount = os.open(directory, os.O_DIRECTORY)
        first = train(Path(f"/proc/self/fd/{mount}"), user=0)
        wait_for(lambda: pod.stored() == first.seq and not list(directory.glob("*.jsonl")))
        second = train(Path(f"/proc/self/fd/{mount}"), user=0)
        wait_for(lambda: pod.stored() == first.seq + second.seq)
        os.close(mount)


def test_the_kubelets_socket_can_be_called_in_a_directory_that_is_roots_alone_and_read_only(node: Path) -> None:
    pod = Pod(node, {})
    directory = node / "pod-resources"
    directory.chmod(0o750)
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(directory / "kubelet.sock"))
        kubelet.listen()
        call = f"import socket; socket.socket(socket.AF_UNIX).connect({pod.settings['gpu']['pod_resources']!r})"
        assert run(pod.spec, pod.container, sys.executable, "-c", call).stderr == ""
        as_another = {**pod.spec, "securityContext": {**pod.spec["securityContext"], "runAsUser": 65532, "runAsGroup": 65532}}
        assert "Permission denied" in run(as_another, pod.container, "ls", str(directory)).stderr


def test_with_a_store_in_s3_and_a_secret_records_go_there(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    s3 = {"existingSecret": "store", "endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"}
    pod = Pod(node, {"store": {"url": "s3://bucket/x", "s3": s3}})
    pod.initialise()
    with s3_server(port), pod.running():
        rank = train(pod.user_pod(), user=0)
        for name, value in s3_environment(port).items():
            monkeypatch.setenv(name, value)
        store = Store("s3://bucket/x")
        wait_for(lambda: sum(len(store.read(part).splitlines()) for part in store.segments("job")) == rank.seq)


def test_without_any_right_it_serves_the_metrics_of_the_host(node: Path) -> None:
    pod = Pod(node, profile(CHART / "ci" / "no-privilege-values.yaml"))
    if not can_run_python(pod.spec, pod.container):
        pytest.skip("this Python lies in a folder that is closed to other users")
    with pod.running():
        assert wait_for(lambda: pod.metric("tachoscope_host_memory_bytes")) > 0
        assert pod.metric("tachoscope_agent_unreadable_directories") == 0
    assert pod.process is not None
    assert pod.process.returncode == 0
    assert "Traceback" not in pod.log.read_text()


ASKS = """
import sys, time
from tachoscope.profiling.kineto_client import ProfileClient
client = ProfileClient(sys.argv[1])
while True:
    client.poll(idle=True)
    time.sleep(0.1)
"""


def test_a_process_that_asks_for_profiles_is_known_by_its_environment_with_the_right_that_the_part_has(node: Path) -> None:
    sockets = node / "s"
    pod = Pod(node, {"collectors": {"profiles": {"sockets": str(sockets)}}})
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TACHOSCOPE_", "SLURM_"))}
    environ = ours | {"RANK": "1", "WORLD_SIZE": "2", "TACHOSCOPE_JOB": "resnet", "KINETO_IPC_SOCKET_DIR": str(sockets)}
    with pod.running():
        wait_for(lambda: (sockets / "dynolog").exists())
        with subprocess.Popen([sys.executable, "-c", ASKS, str(sockets)], env=environ) as asks:
            try:
                wait_for(lambda: json.loads(pod.get("/v1/profiles"))["ranks"])
                (rank,) = json.loads(pod.get("/v1/profiles"))["ranks"]
            finally:
                asks.kill()
        assert (rank["training_job"], rank["rank"], rank["pid"]) == ("resnet", 1, asks.pid)

    pod.container["securityContext"]["capabilities"].pop("add")
    assert run(pod.spec, pod.container, "cat", f"/proc/{os.getpid()}/environ").returncode != 0, "what the capability is for"
