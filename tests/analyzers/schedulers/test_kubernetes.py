import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cluster_making as make
from cluster_making import EIGHT, Object, condition, indexed, of_jobset, of_pytorchjob, pod
from tachoscope_analyzers import schedulers
from tachoscope_analyzers.schedulers.common.allocation import Allocation, gang_wait_seconds, queued_seconds, running_seconds
from tachoscope_core.errors import TachoscopeError


def read(*objects: Object) -> list[Allocation]:
    return schedulers.read_texts([("get.json", json.dumps(make.listed(*objects)))])


def parts(one: Allocation) -> tuple[float | None, float | None, float | None]:
    return queued_seconds(one), gang_wait_seconds(one), running_seconds(one)


def two_pods(
    owner: Object, created: float, *, ended: float | None = None, labels=indexed, name: str = "t", **how: object
) -> list[Object]:
    """Two pods: the first has a node 10 s after it was made and runs at 20 s, the second at 60 s and 75 s."""
    times = ((10, 20), (60, 75))
    return [
        pod(
            f"{name}-{index}",
            created,
            owner=owner,
            scheduled=created + at,
            ran=created + ran,
            ended=ended,
            labels=labels(index),
            **how,
        )
        for index, (at, ran) in enumerate(times)
    ]


def test_a_job_waits_in_the_queue_then_for_its_gang_then_runs() -> None:
    job = make.job("train", 0, condition("Complete", 1076, "CompletionsReached"), completionTime=make.when(1076))

    (found,) = read(job, *two_pods(job, 1, ended=1075))

    assert (found.source, found.name, found.attempt, found.state) == ("kubernetes", "ml/train", 0, "completed")
    assert (found.submitted, found.placed, found.started, found.ended) == (EIGHT, EIGHT + 11, EIGHT + 76, EIGHT + 1075)
    assert parts(found) == (11, 65, 999)
    assert (found.nodes, found.hosts) == (("node-0", "node-1"), ("t-0", "t-1"))
    assert (found.accelerators, found.device) == (16, "nvidia.com/gpu")


def test_a_gang_of_which_one_pod_has_no_node_holds_accelerators_and_does_not_run() -> None:
    job = make.job("train", 0)
    first, second = pod("t-0", 0, owner=job, scheduled=5, ran=9, labels=indexed(0)), pod("t-1", 0, owner=job, labels=indexed(1))

    (found,) = read(job, first, second)

    assert (found.state, found.reason) == ("pending", "t-1: Unschedulable: 0/4 nodes are available: 4 Insufficient GPUs.")
    assert (found.started, found.accelerators) == (None, 8)
    assert gang_wait_seconds(found, now=EIGHT + 100) == 95


def test_a_pod_that_is_missing_is_not_taken_for_one_that_runs() -> None:
    job = make.job("train", 0, pods=3)

    (found,) = read(job, *two_pods(job, 0))

    assert (found.state, found.started) == ("pending", None)


def test_a_node_that_fails_is_the_cause_though_the_job_says_failed() -> None:
    job = make.job("train", 0, condition("Failed", 500, "BackoffLimitExceeded", message="Job has reached the limit"))
    lost = pod(
        "t-0", 0, owner=job, scheduled=1, ran=2, ended=480, exit_code=137, disrupted="DeletionByTaintManager", labels=indexed(0)
    )
    other = pod("t-1", 0, owner=job, scheduled=1, ran=2, ended=470, exit_code=1, labels=indexed(1))

    (found,) = read(job, lost, other)

    assert found.state == "node_failed"
    assert found.reason.startswith("BackoffLimitExceeded: Job has reached the limit; t-0: DeletionByTaintManager")


@pytest.mark.parametrize(
    ("reason", "state"),
    [("PreemptionByScheduler", "preempted"), ("TerminationByKubelet", "node_failed"), ("SomethingNew", "failed")],
)
def test_disruptions_of_pods_tell_why(reason: str, state: str) -> None:
    job = make.job("train", 0, condition("Failed", 500), pods=1)

    (found,) = read(job, pod("t-0", 0, owner=job, scheduled=1, ran=2, ended=480, exit_code=143, disrupted=reason))

    assert found.state == state


def test_a_container_that_ran_out_of_memory_is_named() -> None:
    job = make.job("train", 0, condition("Failed", 500), pods=1)

    (found,) = read(job, pod("t-0", 0, owner=job, scheduled=1, ran=2, ended=480, exit_code=137, reason="OOMKilled"))

    assert (found.state, found.reason) == ("failed", "Because: so it is; t-0: OOMKilled, exit code 137")


def test_a_container_restarted_in_place_keeps_its_first_start_and_is_counted() -> None:
    job = make.job("train", 0, pods=1)

    (found,) = read(job, pod("t-0", 0, owner=job, scheduled=1, ran=7, restarts=1))

    assert (found.state, found.started, found.restarts) == ("running", EIGHT + 7, 1)


def test_of_a_container_restarted_twice_only_an_event_knows_the_first_start() -> None:
    job = make.job("train", 0, pods=1)
    twice = pod("t-0", 0, owner=job, scheduled=1, ran=7, restarts=2)

    assert read(job, twice)[0].started is None
    assert read(job, twice, make.event(twice, "Started", 7))[0].started == EIGHT + 7


def test_a_pod_replaced_while_the_others_stay_is_a_restart_of_the_same_allocation() -> None:
    job = make.job("train", 0)
    stays = pod("t-0", 0, owner=job, scheduled=1, ran=2, labels=indexed(0))
    gone = pod("t-1a", 0, owner=job, scheduled=1, ran=2, ended=50, exit_code=1, labels=indexed(1))
    again = pod("t-1b", 55, owner=job, scheduled=56, ran=57, labels=indexed(1))

    (found,) = read(job, stays, gone, again)

    assert (found.attempt, found.started, found.restarts, found.accelerators) == (0, EIGHT + 2, 1, 16)


def test_a_restarted_jobset_is_a_further_allocation_of_the_same_job() -> None:
    jobset = make.jobset("train", 0, condition("Completed", 2001, "AllJobsCompleted"), restarts=1)
    inner = [make.job("train-node-0", created, owner=jobset) for created in (1, 900)]
    first = two_pods(inner[0], 2, ended=890, exit_code=1, labels=of_jobset, name="a")
    second = two_pods(inner[1], 901, ended=2000, labels=lambda index: of_jobset(index, 1), name="b")

    before, after = read(jobset, *inner, *first, *second)

    assert (before.name, before.attempt, before.state, before.ended) == ("ml/train", 0, "failed", EIGHT + 890)
    assert (after.name, after.attempt, after.state, after.ended) == ("ml/train", 1, "completed", EIGHT + 2000)
    assert after.submitted == before.ended
    assert parts(after) == (21, 65, 1024)


def test_when_only_the_last_pods_of_a_restarted_jobset_are_left_it_keeps_its_number() -> None:
    jobset = make.jobset("train", 0, restarts=2)
    inner = make.job("train-node-0", 900, owner=jobset)

    (found,) = read(jobset, inner, *two_pods(inner, 901, labels=lambda index: of_jobset(index, 2)))

    assert (found.attempt, found.state, found.submitted) == (2, "running", EIGHT + 901)


def test_jobs_of_a_jobset_that_is_not_among_the_objects_are_one_job() -> None:
    jobset = make.jobset("train", 0)
    inner = make.job("train-node-0", 1, owner=jobset)

    (found,) = read(inner, *two_pods(inner, 2, labels=of_jobset))

    assert (found.name, found.submitted, found.state) == ("ml/train", None, "running")
    assert queued_seconds(found) is None


def test_the_quota_of_kueue_is_granted_before_a_node_is_found() -> None:
    job = make.job("train", 0)
    workload = make.workload(
        job,
        1,
        condition("QuotaReserved", 100, "QuotaReserved"),
        condition("Admitted", 101),
        condition("PodsReady", 190),
        flavor="h100",
    )

    (found,) = read({**job, "status": {}}, workload, *two_pods(job, 101))

    assert (found.eligible, found.placed, found.started) == (EIGHT + 100, EIGHT + 111, EIGHT + 176)
    assert found.state == "running"


def test_without_its_pods_a_workload_tells_quota_start_and_kind_but_no_wait_for_the_gang() -> None:
    job = make.job("train", 0)
    workload = make.workload(job, 1, condition("QuotaReserved", 100), condition("PodsReady", 190), flavor="h100")

    (found,) = read(workload)

    assert (found.name, found.submitted, found.eligible, found.placed, found.started) == (
        "ml/train",
        EIGHT + 1,
        EIGHT + 100,
        None,
        EIGHT + 190,
    )
    assert (found.accelerators, found.device) == (16, "h100")
    assert gang_wait_seconds(found) is None
    assert queued_seconds(found) == 189


def test_a_workload_without_quota_waits_and_says_for_what() -> None:
    job = make.job("train", 0)
    waiting = condition("QuotaReserved", 2, "Pending", true=False, message="insufficient unused quota for nvidia.com/gpu")

    (found,) = read({**job, "status": {}}, make.workload(job, 1, waiting))

    assert (found.state, found.reason) == ("pending", "Pending: insufficient unused quota for nvidia.com/gpu")
    assert (found.eligible, found.placed) == (None, None)


@pytest.mark.parametrize("newer", [False, True], ids=["v1", "events.k8s.io"])
def test_a_job_that_was_preempted_by_kueue_queues_again(newer: bool) -> None:
    job = make.job("train", 0)
    workload = make.workload(job, 1, condition("QuotaReserved", 900), condition("PodsReady", 990), evictions=1)
    history = [
        make.event(workload, "QuotaReserved", 100, newer=newer),
        make.event(workload, "EvictedDueToPreempted", 500, "to make room for a workload in the cohort", newer=newer),
    ]

    first, second = read({**job, "status": {}}, workload, *history, *two_pods(job, 901))

    assert (first.attempt, first.state, first.eligible, first.ended) == (0, "preempted", EIGHT + 100, EIGHT + 500)
    assert first.reason == "EvictedDueToPreempted: to make room for a workload in the cohort"
    assert (second.attempt, second.submitted, second.eligible, second.state) == (1, EIGHT + 500, EIGHT + 900, "running")
    assert queued_seconds(second) == 411


def test_when_the_events_have_expired_an_earlier_eviction_is_counted_and_its_times_are_not_made_up() -> None:
    job = make.job("train", 0)
    workload = make.workload(job, 1, condition("QuotaReserved", 900), evictions=2)

    (found,) = read({**job, "status": {}}, workload, *two_pods(job, 901))

    assert (found.attempt, found.submitted, found.eligible) == (2, None, EIGHT + 900)
    assert queued_seconds(found) is None


def test_an_evicted_workload_waits_again() -> None:
    job = make.job("train", 0)
    evicted = condition("Evicted", 500, "PodsReadyTimeout", message="Exceeded the PodsReady timeout")
    workload = make.workload(job, 1, condition("QuotaReserved", 520, "Pending", true=False, message="waits"), evicted)

    first, second = read({**job, "status": {}}, workload)

    assert (first.state, first.ended) == ("timeout", EIGHT + 500)
    assert (second.state, second.reason, second.submitted, second.ended) == ("pending", "Pending: waits", EIGHT + 500, None)


def test_what_an_object_told_earlier_is_kept_when_it_is_given_as_it_was_then_and_is_now() -> None:
    job = {**make.job("train", 0), "status": {}}
    then = make.workload(
        job, 1, condition("QuotaReserved", 100), condition("PodsReady", 190), condition("Evicted", 500, "Preempted")
    )
    now = make.workload(job, 1, condition("QuotaReserved", 900), condition("PodsReady", 990), evictions=1)
    then["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"] = "99", "100"

    found = read(job, now, then)

    assert [(one.attempt, one.state, one.eligible, one.started) for one in found] == [
        (0, "preempted", EIGHT + 100, EIGHT + 190),
        (1, "running", EIGHT + 900, EIGHT + 990),
    ]
    assert found == read(job, then, now)


def test_a_restart_by_volcano_divides_the_life_by_its_history_of_phases() -> None:
    phases = ("Pending", 0), ("Running", 60), ("Restarting", 600), ("Pending", 610), ("Running", 700), ("Completed", 2000)

    first, second = read(make.volcano_job("train", 0, *phases, retries=1))

    assert (first.attempt, first.state, first.started, first.ended) == (0, "failed", EIGHT + 60, EIGHT + 600)
    assert (second.attempt, second.state, second.submitted, second.started) == (1, "completed", EIGHT + 600, EIGHT + 700)
    assert (second.ended, second.accelerators) == (EIGHT + 2000, 16)


def test_a_podgroup_of_volcano_says_why_the_gang_waits() -> None:
    job = make.volcano_job("train", 0, ("Pending", 0))
    waits = condition("Unschedulable", 5, "NotEnoughResources", message="2/2 tasks in gang unschedulable")

    (found,) = read(job, make.podgroup(job, 0, "Inqueue", waits))

    assert (found.state, found.reason) == ("pending", "NotEnoughResources: 2/2 tasks in gang unschedulable")


def test_an_aborted_job_of_volcano_was_cancelled() -> None:
    (found,) = read(make.volcano_job("train", 0, ("Pending", 0), ("Running", 5), ("Aborting", 50), ("Aborted", 60), reason="user"))

    assert (found.state, found.ended) == ("cancelled", EIGHT + 50)


def test_a_pytorchjob_runs_when_all_of_its_pods_do_not_only_its_master() -> None:
    job = make.pytorchjob("train", 0, condition("Created", 0), condition("Running", 20), startTime=make.when(1))
    master, worker = (
        pod("train-master-0", 1, owner=job, scheduled=10, ran=20, labels=of_pytorchjob("master", 0)),
        pod("train-worker-0", 1, owner=job, scheduled=15, ran=90, labels=of_pytorchjob("worker", 0)),
    )

    assert read(job, master, worker)[0].started == EIGHT + 90
    assert read(job)[0].started == EIGHT + 20
    assert read(job)[0].accelerators == 16


def test_a_pytorchjob_that_ended_keeps_the_time_from_which_it_ran() -> None:
    job = make.pytorchjob("train", 0, condition("Running", 20, true=False), condition("Succeeded", 300, "PyTorchJobSucceeded"))

    (found,) = read(job)

    assert (found.state, found.started, found.ended) == ("completed", EIGHT + 20, EIGHT + 300)


def test_a_pytorchjob_that_restarts_has_ended_and_waits() -> None:
    first, second = read(make.pytorchjob("train", 0, condition("Restarting", 200, "PyTorchJobRestarting")))

    assert (first.state, first.ended, second.state, second.submitted) == ("failed", EIGHT + 200, "pending", EIGHT + 200)


def test_a_trainjob_its_jobset_its_jobs_its_workload_and_its_pods_are_one_job() -> None:
    trainjob = make.trainjob("train", 0, condition("Complete", 902, "JobsCompleted"))
    jobset = make.jobset("train", 1, condition("Completed", 901), owner=trainjob)
    inner = make.job("train-node-0", 1, owner=jobset)
    workload = make.workload(trainjob, 0, condition("QuotaReserved", 40), condition("Finished", 903, "Succeeded"))

    (found,) = read(trainjob, jobset, {**inner, "status": {}}, workload, *two_pods(inner, 41, ended=900, labels=of_jobset))

    assert (found.name, found.submitted, found.eligible, found.state) == ("ml/train", EIGHT, EIGHT + 40, "completed")
    assert parts(found) == (51, 65, 784)


def test_two_runs_of_a_cronjob_are_two_jobs() -> None:
    nightly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": make.metadata("cronjob", "nightly", 0)}

    assert [one.name for one in read(*(make.job(f"nightly-{day}", day, owner=nightly) for day in (1, 2)))] == [
        "ml/nightly-1",
        "ml/nightly-2",
    ]


def test_a_pod_without_an_owner_counts_only_if_it_holds_accelerators() -> None:
    web = pod("web-0", 0, scheduled=1, ran=2, gpus=0)
    debug = pod("debug-0", 0, scheduled=1, ran=2)

    assert [one.name for one in read(web, debug)] == ["ml/debug-0"]


def test_pods_of_a_web_server_are_no_job() -> None:
    replicaset = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": make.metadata("replicaset", "web", 0)}

    assert read(replicaset, pod("web-0", 0, owner=replicaset, scheduled=1, ran=2, gpus=0)) == []


def test_parts_of_a_job_in_several_files_are_put_together(tmp_path: Path) -> None:
    job = make.job("train", 0)
    (tmp_path / "job.json").write_text(json.dumps(job))
    pods = {"apiVersion": "v1", "kind": "PodList", "items": [dict(list(one.items())[2:]) for one in two_pods(job, 1)]}
    (tmp_path / "pods.json").write_text(json.dumps(pods))

    assert schedulers.read([tmp_path]) == read(job, *two_pods(job, 1))


def test_objects_written_behind_each_other_are_all_read() -> None:
    job = make.job("train", 0)

    assert schedulers.read_texts([("x", "\n".join(json.dumps(one) for one in (job, *two_pods(job, 1))))]) == read(
        job, *two_pods(job, 1)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "x is empty"),
        ("hello", "x:1 is neither JSON nor a table of sacct"),
        ("[1]", "x is a JSON list, not an object"),
        ('{"a": 1}', "x is neither the output of sacct nor an object of Kubernetes"),
    ],
)
def test_a_file_of_no_scheduler_says_what_is_expected(content: str, message: str) -> None:
    with pytest.raises(TachoscopeError, match=f"{message}.*kubectl get"):
        schedulers.read_texts([("x", content)])


def test_a_directory_without_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match=r"has no \.json and no \.txt file"):
        schedulers.read([tmp_path])


TIMES = st.lists(st.integers(0, 5_000), min_size=4, max_size=4).map(sorted)


@given(TIMES, st.integers(1, 4), st.data())
def test_queue_wait_for_the_gang_and_running_sum_to_the_time_from_submission_to_end(times: list[int], count: int, data) -> None:
    created, placed, ran, ended = times
    job = make.job("train", created, condition("Failed", ended), pods=count)
    spread = [
        (data.draw(st.integers(placed, ran)), data.draw(st.integers(ran, ended)), data.draw(st.integers(ran, ended)))
        for _ in range(count)
    ]
    pods = [
        pod(f"t-{i}", created, owner=job, scheduled=at, ran=min(a, b), ended=max(a, b), exit_code=1, labels=indexed(i))
        for i, (at, a, b) in enumerate(spread)
    ]

    (found,) = read(job, *pods)

    assert None not in parts(found)
    assert sum(part for part in parts(found) if part is not None) == found.ended - found.submitted
    assert found.started == EIGHT + max(min(a, b) for _, a, b in spread)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.data())
def test_restarts_divide_the_life_without_gap_and_overlap(lengths: list[int], data) -> None:
    jobset = make.jobset("train", 0, restarts=len(lengths) - 1)
    at, objects = 0, [jobset]
    for restart, length in enumerate(lengths):
        ended = at + length + 80
        objects += two_pods(jobset, at, ended=ended, exit_code=1, labels=lambda i, n=restart: of_jobset(i, n), name=f"r{restart}")
        at = ended + data.draw(st.integers(0, 100))

    found = read(*data.draw(st.permutations(objects)))

    assert [one.attempt for one in found] == list(range(len(lengths)))
    assert all(after.submitted == before.ended for before, after in itertools.pairwise(found))
    assert sum(sum(part or 0 for part in parts(one)) for one in found) == found[-1].ended - EIGHT


def places(document: object, path: tuple[str | int, ...] = ()):
    """Every place in a document."""
    inner = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def whole_life() -> Object:
    trainjob = make.trainjob("train", 0, condition("Suspended", 5, true=False))
    jobset = make.jobset("train", 1, condition("Failed", 901), owner=trainjob, restarts=1)
    inner = make.job("train-node-0", 1, condition("Failed", 900), owner=jobset)
    workload = make.workload(trainjob, 0, condition("QuotaReserved", 40), condition("Evicted", 903), flavor="h100", evictions=1)
    pods = two_pods(inner, 41, ended=900, exit_code=1, labels=of_jobset)
    volcano = make.volcano_job("v", 0, ("Running", 60), ("Restarting", 600))
    rest = (
        volcano,
        make.podgroup(volcano, 0, "Inqueue", condition("Unschedulable", 5)),
        make.pytorchjob("p", 0, condition("Running", 20)),
    )
    return make.listed(trainjob, jobset, inner, workload, *pods, *rest, make.event(workload, "QuotaReserved", 40))


@given(
    st.sampled_from(list(places(whole_life()))),
    st.sampled_from([None, True, 3, -1.5, "x", [], {}, [None], ["x"], {"x": "x"}, "9999"]),
)
def test_no_object_whatever_is_in_it_breaks_the_reading(place: tuple[str | int, ...], value: object) -> None:
    document = inner = whole_life()
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value

    try:
        schedulers.read_texts([("x", json.dumps(document))])
    except TachoscopeError as error:
        assert "x is neither" in str(error)
