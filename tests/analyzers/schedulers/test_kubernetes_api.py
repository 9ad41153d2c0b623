"""The live source against a fake API server, over real HTTP and by the real client of Kubernetes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cluster_making as make
import fake_api_server
from cluster_making import EIGHT, condition, of_jobset, pod
from fake_api_server import FakeApiServer
from tachoscope_cli.sources.schedulers import allocations
from tachoscope_core.errors import TachoscopeError

PODS, EVENTS = "/api/v1/namespaces/ml/pods", "/api/v1/namespaces/ml/events"
JOBS, JOBSETS = "/apis/batch/v1/namespaces/ml/jobs", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    jobset = make.jobset("train", 0, condition("Completed", 901), pods=5)
    inner = make.job("train-node-0", 1, owner=jobset, pods=5)
    workload = make.workload(jobset, 0, condition("QuotaReserved", 40), pods=5)
    with fake_api_server.running() as fake:
        monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig(tmp_path / "kubeconfig")))
        fake.lists[PODS] = [
            pod(f"t-{index}", 41, owner=inner, scheduled=50 + index, ran=60 + index, ended=900, labels=of_jobset(index))
            for index in range(5)
        ]
        fake.lists[EVENTS] = [make.event(workload, "QuotaReserved", 40)]
        fake.lists |= {JOBS: [{**inner, "status": {}}], JOBSETS: [jobset], WORKLOADS: [workload]}
        yield fake


def test_a_job_is_put_together_from_all_pages_of_all_kinds_that_are_installed(server: FakeApiServer) -> None:
    (found,) = allocations(["kubernetes:ml/train"])

    assert (found.name, found.state, found.accelerators) == ("ml/train", "completed", 40)
    assert (found.eligible, found.placed, found.started) == (EIGHT + 40, EIGHT + 50, EIGHT + 64)
    assert sum(path == PODS for _, path in server.asked) == 3


def test_nothing_but_lists_is_asked_for(server: FakeApiServer) -> None:
    allocations(["kubernetes:ml/train"])

    assert {command for command, _ in server.asked} == {"GET"}
    assert all("/namespaces/ml/" in path for _, path in server.asked)


def test_a_job_that_is_not_there_is_refused_with_those_that_are(server: FakeApiServer) -> None:
    with pytest.raises(TachoscopeError, match="no job other in the namespace ml; it has ml/train"):
        allocations(["kubernetes:ml/other"])


def test_a_kind_that_may_not_be_listed_is_said_to_be_missing(server: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.forbidden = {EVENTS}

    (found,) = allocations(["kubernetes:ml/train"])

    assert found.started == EIGHT + 64
    assert "no permission to list events" in capsys.readouterr().err


def test_without_the_right_to_list_pods_the_way_out_is_told(server: FakeApiServer) -> None:
    server.forbidden = {PODS}

    with pytest.raises(TachoscopeError, match=r"refused to list pods: 403.*docs/guides/schedulers.md"):
        allocations(["kubernetes:ml/train"])


def test_a_server_that_does_not_answer_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = FakeApiServer(url="http://127.0.0.1:9")
    monkeypatch.setenv("KUBECONFIG", str(nobody.kubeconfig(tmp_path / "kubeconfig")))

    with pytest.raises(TachoscopeError, match="Kubernetes does not answer"):
        allocations(["kubernetes:ml/train"])


def test_without_a_cluster_the_way_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(TachoscopeError, match="no cluster is configured.*KUBECONFIG"):
        allocations(["kubernetes:ml/train"])


@pytest.mark.parametrize("word", ["kubernetes:train", "kubernetes:/train", "kubernetes:ml/"])
def test_a_name_without_its_namespace_is_refused(word: str) -> None:
    with pytest.raises(TachoscopeError, match="kubernetes:NAMESPACE/NAME"):
        allocations([word])
