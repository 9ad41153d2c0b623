"""JobSets as the schema of the CRD has them, and what follows from an API server's answers, by a fake one without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import fake_api_server
from fake_api_server import FakeApiServer
from kubernetes_rules import schema_faults
from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState, TooFewHostsError
from tachoscope_cli.training_jobs.kubernetes import KubernetesEngine
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import KubernetesOptions, TrainingJob

SCHEMA = Path(fake_api_server.__file__).with_name("jobset_schema.json")
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets"
JOBS, PODS, NODES = "/apis/batch/v1/namespaces/ml/jobs", "/api/v1/namespaces/ml/pods", "/api/v1/nodes"
OPTIONS = KubernetesOptions(namespace="ml", image="registry/training:1", queue="train")
WHOLE = """
name: Llama_7B.with-a-name-that-is-far-too-long-for-a-name-in-the-domain-name-system
engine: kubernetes
command: [torchrun, "--nnodes={nodes}", "--rdzv-endpoint={master}:29500", train.py]
working_directory: /code
nodes: 4
gpus_per_node: 8
cpus_per_node: 32
memory_per_node: 512G
time_limit: 1d
kubernetes:
  namespace: ml
  image: registry/training:1
  queue: train
  priority_class: research
  service_account: trainer
  node_selector: {cloud.google.com/gke-accelerator: nvidia-h100}
  volumes: {/code: code}
  secret_volumes: {/run/secrets: hf}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server.running() as fake:
        monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig(tmp_path / "kubeconfig")))
        fake.page = 100
        fake.lists |= {JOBSETS: [], JOBS: [], PODS: [], NODES: [_node("gpu-1"), _node("gpu-2"), _node("gpu-3")]}
        yield fake


def test_the_rendered_jobset_is_valid_by_its_schema_and_a_gang_that_kueue_queues(tmp_path: Path) -> None:
    path = tmp_path / "training_job.yaml"
    path.write_text(WHOLE)
    words = [sys.executable, "-m", "tachoscope_cli.main", "submit", str(path), "--render", "--store", "s3://bucket/store"]

    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    assert schema_faults(found, "1.34") == []
    assert found["spec"]["suspend"] is True
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "train"
    assert found["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "research"
    (replicated,) = found["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (job["parallelism"], job["completions"], job["backoffLimit"], job["activeDeadlineSeconds"]) == (4, 4, 0, 86400)
    (container,) = job["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "cpu": "32", "memory": "512Gi"}
    master = container["env"][0]["value"]
    assert master == f"{found['metadata']['name']}-node-0-0.{found['metadata']['name']}"
    assert len(master.partition(".")[0]) <= 63 - len("-00000") - len("0000"), "names of pods are names in DNS"


def test_an_attempt_is_created_once_and_keeps_off_excluded_nodes(server: FakeApiServer) -> None:
    engine = KubernetesEngine(OPTIONS)
    request = _request(nodes=2, excluded=["gpu-2"])
    assert engine.find(request.label) is None

    name = engine.submit(request)

    assert engine.submit(request) == engine.find(request.label) == name
    (body,) = server.bodies
    jsonschema.validate(body, json.loads(SCHEMA.read_text()))
    pod = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-2"]}]
    with pytest.raises(TooFewHostsError):
        engine.submit(_request(nodes=3, excluded=["gpu-2"]))


def test_a_cancelled_attempt_is_deleted_and_has_ended(server: FakeApiServer) -> None:
    engine = KubernetesEngine(OPTIONS)
    name = engine.submit(_request())

    engine.cancel(name)
    engine.cancel(name)

    assert ("DELETE", f"{JOBSETS}/{name}") in server.asked
    assert engine.state(name) == EngineState("ended", "the JobSet was deleted", cancelled=True)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, EngineState("running")),
        ({"spec": {"suspend": True}}, EngineState("queued")),
        ({"status": {"conditions": [{"type": "Completed", "status": "True"}]}}, EngineState("ended", "Completed")),
    ],
)
def test_a_state_is_what_the_jobset_says(server: FakeApiServer, change: dict[str, Any], state: EngineState) -> None:
    server.lists[JOBSETS] = [{"metadata": {"name": "x"}, "spec": {}, **change}]

    assert KubernetesEngine(OPTIONS).state("x") == state


@pytest.mark.parametrize(
    ("job", "pod", "state"),
    [
        (("BackoffLimitExceeded", "x"), "", EngineState("ended", "FailedJobs: by x")),
        (("DeadlineExceeded", "late"), "", EngineState("ended", "DeadlineExceeded: late", by_engine=True)),
        (
            ("PodFailurePolicy", "Pod has condition DisruptionTarget matching FailJob rule"),
            "PreemptionByScheduler",
            EngineState("ended", "PreemptionByScheduler of x-0", by_engine=True),
        ),
        (
            ("PodFailurePolicy", "Pod has condition DisruptionTarget matching FailJob rule"),
            "DeletionByTaintManager",
            EngineState("ended", "DeletionByTaintManager of x-0", ("gpu-1",), by_engine=True),
        ),
    ],
)
def test_an_end_by_the_cluster_and_a_lost_node_are_told_from_a_failure(
    server: FakeApiServer, job: tuple[str, str], pod: str, state: EngineState
) -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "x"}
    failed = {"type": "Failed", "status": "True", "reason": job[0], "message": job[1]}
    target = [{"type": "DisruptionTarget", "status": "True", "reason": pod}] if pod else []
    whole = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "by x"}
    server.lists[JOBSETS] = [{"metadata": {"name": "x"}, "spec": {}, "status": {"conditions": [whole]}}]
    server.lists[JOBS] = [{"metadata": {"name": "x-node-0", "labels": labels}, "status": {"conditions": [failed]}}]
    server.lists[PODS] = [
        {"metadata": {"name": "x-0", "labels": labels}, "spec": {"nodeName": "gpu-1"}, "status": {"conditions": target}}
    ]

    assert KubernetesEngine(OPTIONS).state("x") == state


def test_hosts_are_known_once_all_pods_have_a_node_and_carry_the_names_that_processes_see(server: FakeApiServer) -> None:
    engine = KubernetesEngine(OPTIONS)
    name = engine.submit(_request(nodes=2))
    labels = {"jobset.sigs.k8s.io/jobset-name": name}
    pods = [{"metadata": {"name": f"{name}-{n}-abc", "labels": labels}, "spec": {"hostname": f"{name}-{n}"}} for n in range(2)]
    server.lists[PODS] = pods
    assert engine.hosts(name) == {}

    for number, pod in enumerate(pods):
        pod["spec"]["nodeName"] = f"gpu-{number}"

    assert engine.hosts(name) == {f"{name}-0": "gpu-0", f"{name}-1": "gpu-1"}


def test_what_the_server_refuses_is_an_error_that_names_the_rights_and_ends_no_attempt(server: FakeApiServer) -> None:
    server.forbidden = {JOBSETS, f"{JOBSETS}/x"}

    with pytest.raises(TachoscopeError, match=r"refused to create jobsets in namespace ml: 403.*training-jobs.md"):
        KubernetesEngine(OPTIONS).submit(_request())
    with pytest.raises(TachoscopeError, match="refused to read jobsets"):
        KubernetesEngine(OPTIONS).state("x")


def _node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def _request(nodes: int = 1, excluded: tuple[str, ...] | list[str] = ()) -> AttemptRequest:
    job = TrainingJob(
        name="x", engine="kubernetes", command=("python", "train.py"), working_directory="/code", nodes=nodes, kubernetes=OPTIONS
    )
    return AttemptRequest(
        job=job,
        number=0,
        label=f"tachoscope-x-{nodes}",
        command=["python3", "-m", "x"],
        excluded_hosts=excluded,
        log=Path("/log"),
        lock=-1,
    )
