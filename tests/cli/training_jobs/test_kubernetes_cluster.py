"""A job on Kubernetes from its submission to its end, and the node that it lost until that is back: the cluster is a fake, which
speaks HTTP and runs pods as processes; supervisor, attempts, life cycle and test of the node are the real ones.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fake_api_server
from fake_api_server import TOKEN, FakeApiServer
from fake_cluster import NODES, FakeCluster
from kubernetes_rules import schema_faults
from tachoscope_cli.training_jobs.kubernetes import KubernetesEngine
from tachoscope_cli.training_jobs.lock import held
from tachoscope_cli.training_jobs.supervisor import Supervisor
from tachoscope_core.jobs import submission
from tachoscope_core.jobs.submitted_jobs import TrainingJobs
from tachoscope_core.jobs.training_job import KubernetesOptions, RestartPolicy, TrainingJob
from tachoscope_core.storage.node_status import NodeStatus, XidStatus
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_watch.nodes.kubernetes import KubernetesNodes
from tachoscope_watch.nodes.lifecycle import NodeLifecycle
from tachoscope_watch.nodes.states import Rules
from tachoscope_watch.nodes.stored import Lifecycle

WAIT_SECONDS = 120.0
# The first time it trains until its node is lost.
TRAINING = """
import pathlib, time
begun = pathlib.Path("begun")
again = begun.exists()
begun.touch()
if not again:
    time.sleep(600)
"""
# The command with a preflight that finds the node fit: how fast this machine is does not matter here.
NODE_TEST = """
import sys
from tachoscope_cli.commands import nodes
nodes._preflight = lambda url, words: ("fit", "")
from tachoscope_cli.main import main
sys.exit(main())
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server.running() as fake:
        monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig(tmp_path / "kubeconfig")))
        monkeypatch.setenv("TACHOSCOPE_SPOOL", str(tmp_path / "spool"))
        fake.page = 100
        yield fake


@pytest.fixture
def cluster(server: FakeApiServer) -> Iterator[FakeCluster]:
    made = FakeCluster(server, "ml", ["gpu-1", "gpu-2"])
    yield made
    made.close()


def _submitted(folder: Path, store: Store) -> KubernetesOptions:
    options = KubernetesOptions(namespace="ml", image="registry/training:1", python=sys.executable, volumes={str(folder): "claim"})
    job = TrainingJob(
        name="x",
        engine="kubernetes",
        command=(sys.executable, "train.py"),
        working_directory=str(folder),
        kubernetes=options,
        restart=RestartPolicy(delay_seconds=0.0),
    )
    submission.submit(store, job)
    return options


def _lifecycle(folder: Path, store: Store, url: str) -> NodeLifecycle:
    for name, text in (("token", TOKEN), ("namespace", "ml")):
        (folder / name).write_text(text)
    words = ["nodes", "test", "--node", "$(TACHOSCOPE_NODE)", "--store", store.url, "--", "--quick"]
    container = {"name": "test", "image": "registry/training:1", "command": [sys.executable, "-c", NODE_TEST], "args": words}
    rules = Rules(scheduler="kubernetes", actions="on", most_out=1, test_pod={"containers": [container]})
    nodes = KubernetesNodes(url, folder, rules.test_pod)
    return NodeLifecycle(store, rules, nodes, Log(logging.getLogger("test")))


def test_a_job_goes_on_without_the_node_that_it_lost_and_the_node_returns_once_a_job_on_it_finds_it_fit(
    server: FakeApiServer, cluster: FakeCluster, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "store").mkdir()
    store, said = Store(str(tmp_path / "store")), list[str]()
    jobs, kept = TrainingJobs(store), Lifecycle(store)
    options = _submitted(tmp_path, store)
    nodes = _lifecycle(tmp_path, store, server.url)

    with held(tmp_path, "x") as lock:
        assert lock is not None
        supervisor = Supervisor(store, "x", KubernetesEngine(options), tmp_path, lock, said.append)

        def until(true: Callable[[], bool]) -> None:
            deadline = time.monotonic() + WAIT_SECONDS
            while not true():
                assert time.monotonic() < deadline, said
                for look in (supervisor.look, cluster.step, nodes.look):
                    look()
                time.sleep(0.05)

        until(lambda: (tmp_path / "begun").exists() and bool(jobs.status("x").attempts[-1].hosts))
        cluster.lose("gpu-1")
        xid = NodeStatus("gpu-1", time.time(), 30.0, 30.0, [], time.time() - 3600, [XidStatus("79", "3", time.time())])
        nodes.take_jobs(time.time(), [], [xid])
        until(lambda: jobs.status("x").state == "completed")
        nodes.take_jobs(time.time(), [], [])
        cluster.boot("gpu-1")
        until(lambda: _state(kept) == "returned")

    first, second = jobs.status("x").attempts
    assert (first.decision, list(first.hosts.values())) == ("restart", ["gpu-1"])
    assert first.reason.startswith("the engine ended it: DeletionByTaintManager of ") and first.reason.endswith(": gpu-1")
    assert second.excluded_hosts == ("gpu-1",) and cluster.placed(second.engine_id) == ["gpu-2"]
    test = next(one for one in server.bodies if one["kind"] == "Job")
    assert (schema_faults(test, "1.34"), cluster.placed(test["metadata"]["name"])) == ([], ["gpu-1"])
    actions = [f"{line.what} {line.outcome}" for line in kept.audit_lines(node="gpu-1") if line.what != "state"]
    assert actions == ["drain begun", "drain done", "test begun", "test done", "resume begun", "resume done"]
    node = server.object_at(f"{NODES}/gpu-1")
    assert node is not None and node["spec"]["taints"] == []


def _state(kept: Lifecycle) -> str:
    fleet = kept.fleet()
    return fleet.nodes["gpu-1"].state if fleet is not None and "gpu-1" in fleet.nodes else ""
