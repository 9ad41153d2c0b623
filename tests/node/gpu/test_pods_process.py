"""The agent as its own process, with a driver, a kubelet and ranks: who has each GPU is on its page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fake_nvml import Driver
from gpu.fake_kubelet import kubelet
from processes import AgentProcess, agent_process, wait_for
from spool_writing import Process
from tachoscope_core.records import records

UID = "a9c80282-3f6b-4d5b-84d5-a137a6668011"


def workloads(page: str, metric: str = "tachoscope_gpu_workload_info") -> set[tuple[str, ...]]:
    """Return (gpu, mig, namespace, pod, container, job, rank) of each series."""
    names = ("gpu", "mig", "workload_namespace", "workload_pod", "workload_container", "training_job", "rank")
    lines = [line for line in page.splitlines() if line.startswith(f"{metric}{{")]
    told = [dict(part.split("=", 1) for part in line.partition("{")[2].rpartition("}")[0].split(",")) for line in lines]
    return {tuple(labels[name].strip('"') for name in names) for labels in told}


def page_with_workloads(agent: AgentProcess) -> str:
    page = agent.get("/metrics")
    return page if workloads(page) else ""


def test_the_page_tells_pod_container_and_rank_of_each_gpu_and_of_no_other(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver", "h100x8")
    uuids = [str(driver.value(number, "uuid")) for number in range(8)]
    for number in (2, 3):
        process = Process(tmp_path / "spool" / f"ml_train-0_{UID}", job="llm", rank=number, world_size=2)
        process.write(records.JobStarted, world_size=2, pid=100 + number, gpu_uuid=uuids[number].removeprefix("GPU-"))
    # This very process computes on GPU 5, and is a rank there.
    own = Process(tmp_path / "spool" / "run-1", job="alone", rank=0)
    own.start(pid=os.getpid())
    driver.set_gpu(5, **{f"process.{os.getpid()}": 3 << 30})
    with kubelet(tmp_path / "kubelet") as fake:
        fake.give(uuids[2], uuids[3], pod="train-0", container="pytorch")
        fake.give(f"{uuids[7]}::1", pod="serve-0")
        fake.give(f"{uuids[7]}::2", pod="serve-1")
        wanted = {
            ("2", "", "ml", "train-0", "pytorch", "llm", "2"),
            ("3", "", "ml", "train-0", "pytorch", "llm", "3"),
            ("5", "", "", "", "", "alone", "0"),
            ("7", "", "ml", "serve-0", "main", "", ""),
            ("7", "", "ml", "serve-1", "main", "", ""),
        }
        with agent_process(
            tmp_path, environ=driver.environment(), gpu={"enabled": "on", "pod_resources": str(fake.socket)}
        ) as agent:
            # Where the kubelet did not answer in time the first look has less, and the next one comes after 10 s.
            page = wait_for(lambda: found if workloads(found := page_with_workloads(agent)) == wanted else "")

    assert workloads(page) == wanted
    assert workloads(page, "tachoscope_gpu_workload_memory_bytes") == {("5", "", "", "", "", "alone", "0")}
    assert "tachoscope_gpu_pod_resources_up 1.0" in page
    assert 'tachoscope_gpu_devices_unmapped{kind="device"} 0.0' in page


@pytest.mark.bar
def test_a_kubelet_that_hangs_leaves_the_page_and_the_other_collectors_as_they_are(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver", "h100_mig")
    slices = ["MIG-8a100000-0000-5000-8000-000000000002", "MIG-8a100000-0000-5000-8000-000000000005"]
    rank = Process(tmp_path / "spool" / f"ml_{UID}", job="llm", rank=0)
    rank.write(records.JobStarted, world_size=1, pid=7, gpu_uuid=slices[0])
    with kubelet(tmp_path / "kubelet") as fake:
        fake.hangs = True
        with agent_process(
            tmp_path, environ=driver.environment(), gpu={"enabled": "on", "pod_resources": str(fake.socket)}
        ) as agent:
            page = wait_for(lambda: page_with_workloads(agent))
            assert "tachoscope_gpu_pod_resources_up 0.0" in page
            assert workloads(page) == {("0", "2", "ml", "", "", "llm", "0")}
            assert page.count('tachoscope_collector_success{collector="nvml"} 1.0') == 1

            fake.give(*slices, pod="train-0", resource="nvidia.com/mig-3g.40gb")
            fake.stop()
            fake.hangs = False
            fake.start()
            wait_for(lambda: "tachoscope_gpu_pod_resources_up 1.0" in agent.get("/metrics"))
            assert workloads(agent.get("/metrics")) == {
                ("0", "2", "ml", "train-0", "main", "llm", "0"),
                ("0", "5", "ml", "train-0", "main", "", ""),
            }
        log = agent.log.read_text()
    assert log.count("pod-resources: failed") == 1
    assert log.count("the kubelet answers again") == 1


@pytest.mark.bar
def test_the_activity_of_the_gpus_of_a_job_that_does_steps_is_counted_and_of_one_that_does_none_is_not(tmp_path: Path) -> None:
    driver, ranks = Driver(tmp_path / "driver", "h100x8"), []
    for gpu, job, rank in ((1, "trains", 0), (2, "trains", 1), (3, "waits", 0)):
        driver.set_gpu(gpu, **{"gpm.2": 40.0 + gpu})
        ranks.append(Process(tmp_path / "spool" / f"run-{gpu}", job=job, rank=rank))
        ranks[-1].write(records.JobStarted, world_size=2, pid=100 + gpu, gpu_uuid=str(driver.value(gpu, "uuid")))

    def counted() -> dict[str, float]:
        """Return count and sum by `count trains` and the like, after one more step."""
        ranks[0].step()
        lines = [line.split() for line in agent.get("/metrics").splitlines() if line.startswith("tachoscope_job_sm_active_ratio_")]
        shown = {name.replace('{training_job="', " ").removesuffix('"}'): float(value) for name, value in lines}
        return {name.removeprefix("tachoscope_job_sm_active_ratio_"): value for name, value in shown.items()}

    with agent_process(tmp_path, environ=driver.environment(), gpu={"enabled": "on"}) as agent:
        found = wait_for(lambda: found if (found := counted()).get("count trains", 0) >= 4 else None, seconds=60.0)

    assert found["sum trains"] == pytest.approx(found["count trains"] * (0.41 + 0.42) / 2)
    assert (found["count waits"], found["sum waits"]) == (0.0, 0.0)
