"""What a specification may say, and what follows from the end of an attempt."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import msgspec
import pytest

from life_making import killed_three_times
from tachoscope_cli.training_jobs import attempt
from tachoscope_cli.training_jobs.checkpoint_advice import advice
from tachoscope_cli.training_jobs.engine import EngineState
from tachoscope_cli.training_jobs.policy import Ended, judge
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs import data_policy, submission
from tachoscope_core.jobs.submitted_jobs import Attempt, AttemptEnd, SubmittedJob, TrainingJobs
from tachoscope_core.jobs.training_job import RestartPolicy
from tachoscope_core.jobs.training_job_file import read_training_job
from tachoscope_core.records import records
from tachoscope_core.report.failures import Failure
from tachoscope_core.storage.store import Store

WHOLE = """
name: llama-7b
engine: slurm
command: [torchrun, "--nnodes={nodes}", train.py]
resume: [--resume, "{checkpoint}"]
nodes: 4
gpus_per_node: 8
memory_per_node: 512G
time_limit: 1d
environment: {OMP_NUM_THREADS: 8}
secrets: {HF_TOKEN: /run/secrets/hf_token}
data: {snapshot: pile@v3, purpose: research}
slurm: {partition: train, qos: high}
restart: {most_attempts: 5, hung_after: 3m}
"""


def test_a_specification_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "training_job.yaml"
    path.write_text(WHOLE)

    job = read_training_job(path)

    assert (job.engine, job.nodes, job.time_limit_seconds, job.environment) == ("slurm", 4, 86400.0, {"OMP_NUM_THREADS": "8"})
    assert (job.slurm_options, job.restart.hung_seconds) == (("--partition=train", "--qos=high"), 180.0)
    assert job.working_directory == str(tmp_path)
    with pytest.raises(TachoscopeError, match="gpus_per_node is not for engine: local"):
        read_training_job(path, engine="local")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nmae: x", "nmae is an unknown key"),
        ("engine: pbs", "is 'pbs', which is not an engine"),
        ("command: python train.py", "is not a list"),
        ("command: [train, --api-key=sk-live-0123456789abcdef]", "contains a secret"),
        ("environment: {HF_TOKEN: hf_abcdefghijklmnopqrstuvwxyz012345}", "environment.HF_TOKEN contains a secret"),
        ("secrets: {HF_TOKEN: token.txt}", "is not an absolute path"),
        ("environment: {DBPASS: hunter2}", "environment.DBPASS contains a secret"),
        ('environment: {PGCONN: "host=h user=u pass=hunter2"}', "environment.PGCONN contains a secret"),
        ("resume: [--resume]", "does not contain {checkpoint}"),
        ("resume: --resume {checkpoint}", "not a list of words"),
        ("command: [torchrun, '--nnodes={nodse}', train.py]", "has {nodse}, which is not known"),
        ("working_directory: nowhere", "which is not a directory here"),
        ("nodes: 2", "is 2 for this machine"),
        ("nodes: 0", "write a whole number of at least 1"),
        ("time_limit: soon", "not a duration"),
        ("slurm: {wrap: rm -rf /}", "is an option that tachoscope sets"),
        ("restart: {most_attempts: 5000}", "write at most 1000"),
        ("actions: {quarantine_shards: always}", "write one of off, dry_run, apply"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "training_job.yaml"
    key = line.partition(":")[0]
    others = {"name": "name: x", "command": "command: [python, train.py]"}
    others.pop(key, None)
    path.write_text("\n".join([line, *others.values()]))

    with pytest.raises(TachoscopeError) as error:
        read_training_job(path)

    assert said in str(error.value)
    assert f"{path}:1:" in str(error.value)


HEAD = "name: x\ncommand: [train]\nworking_directory: /code\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: x\ncommand:\n  - python\n  - --api-key=sk-live-0123456789abcdef\n", 4, "command[1] contains a secret"),
        ("name: x\ncommand: [train,\n  '{nodse}']\n", 3, "has {nodse}"),
        ("name: x\ncommand: [train]\n---\nname: y\n", 4, "has 2 documents"),
        (f"{HEAD}engine: kubernetes\nkubernetes:\n  namespace: ML\n  image: i\n", 6, "kubernetes.namespace is not a name"),
        (f"{HEAD}engine: kubernetes\nkubernetes: {{namespace: ml}}\n", 5, "kubernetes lacks image"),
        (f"{HEAD}engine: kubernetes\nkubernetes: {{namespace: ml, image: i, volumes: {{data: d}}}}\n", 5, "not an absolute path"),
        (f"{HEAD}engine: ray\nray: {{address: head}}\n", 5, "ray.address is not the address of a Ray dashboard"),
        (f"{HEAD}engine: ray\nray: {{address: 'http://head:8265'}}\nnodes: 2\n", 6, "is 2 for engine: ray"),
        (f"{HEAD}engine: ray\nray: {{address: 'http://head:8265'}}\ntime_limit: 1d\n", 6, "is not for engine: ray"),
        ("name: x\nengine: ray\ncommand: [train]\n", 1, "lacks working_directory"),
    ],
)
def test_an_error_names_the_line_of_the_offender_in_longer_texts(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = tmp_path / "training_job.yaml"
    path.write_text(text)

    with pytest.raises(TachoscopeError) as error:
        read_training_job(path)

    assert said in str(error.value)
    assert f"{path}:{line}" in str(error.value)


POLICY = """
snapshots:
  - {snapshot: "pile@*", projects: [language], purposes: [research, evaluation]}
  - {snapshot: "public-*"}
"""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("data: {snapshot: pile@v3, project: language, purpose: research}", ""),
        ("data: {snapshot: public-1}", ""),
        ("data: {snapshot: pile@v3, project: language, purpose: marketing}", "purpose 'marketing'"),
        ("data: {snapshot: pile@v3, purpose: research}", "no project"),
        ("data: {snapshot: other, project: language, purpose: research}", "no entry"),
        ("nodes: 1", "names no data snapshot"),
    ],
)
def test_the_data_policy_says_which_project_may_read_which_snapshot_for_what(tmp_path: Path, data: str, said: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    path = tmp_path / "training_job.yaml"
    path.write_text(f"name: x\nengine: local\ncommand: [python, train.py]\n{data}\n")
    environ = {"TACHOSCOPE_DATA_POLICY": str(tmp_path / "policy.yaml")}

    why = data_policy.refusal(read_training_job(path), environ)

    assert said in why
    assert bool(said) == bool(why)
    assert not data_policy.refusal(read_training_job(path), {}), "without a policy all is allowed"


def test_a_data_policy_that_cannot_be_read_allows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "training_job.yaml"
    path.write_text("name: x\nengine: local\ncommand: [python, train.py]\ndata: {snapshot: a}\n")
    monkeypatch.setenv("TACHOSCOPE_DATA_POLICY", str(tmp_path / "policy.yaml"))

    with pytest.raises(TachoscopeError, match=r"policy\.yaml cannot be read"):
        submission.submit(Store(str(tmp_path / "store")), read_training_job(path))
    (tmp_path / "policy.yaml").write_text("snapshot: [a]\n")
    with pytest.raises(TachoscopeError, match=r"policy\.yaml:1: snapshot is an unknown key"):
        submission.submit(Store(str(tmp_path / "store")), read_training_job(path))


def test_the_file_of_a_secret_must_be_where_the_pods_have_it(tmp_path: Path) -> None:
    path = tmp_path / "training_job.yaml"
    mounted = "kubernetes: {namespace: ml, image: i, secret_volumes: {/run/secrets: hf}}"
    path.write_text(
        f"name: x\nengine: kubernetes\nworking_directory: /code\ncommand: [train]\nsecrets: {{HF: /etc/hf}}\n{mounted}\n"
    )

    with pytest.raises(TachoscopeError, match="no file /etc/hf, of the secret HF"):
        submission.check_store(read_training_job(path), Store("s3://bucket/x"))
    path.write_text(path.read_text().replace("/etc/hf", "/run/secrets/hf"))
    submission.check_store(read_training_job(path), Store("s3://bucket/x"))


def test_only_the_commit_that_a_job_names_is_run(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def why(commit: str) -> str:
        path.write_text(f"name: x\nengine: local\ncommand: [python, train.py]\ncode: {{commit: '{commit}'}}\n")
        try:
            submission.check_code(read_training_job(path))
        except TachoscopeError as error:
            return str(error)
        return ""

    path = tmp_path / "training_job.yaml"
    assert "is not a checkout" in why("1234567")
    git("init", "--quiet")
    (tmp_path / "train.py").write_text("")
    git("add", "train.py")
    git("commit", "--quiet", "--message", "first")
    head = git("rev-parse", "HEAD")

    assert why(head[:8]) == "", "the specification itself need not be in it"
    assert f"has commit {head[:12]}" in why("1234567")
    (tmp_path / "train.py").write_text("changed = 1")
    assert "changes that are not in commit" in why(head)
    assert "not a commit of git" in _refused(path, "code: {commit: main}")


def test_the_checkpoint_interval_is_compared_with_the_best_one_of_an_earlier_job(tmp_path: Path) -> None:
    store, path = Store(str(tmp_path / "store")), tmp_path / "training_job.yaml"
    life = killed_three_times()
    rows = [
        msgspec.structs.replace(row, blocking_seconds=0.5) if isinstance(row, records.CheckpointSaved) else row for row in life.rows
    ]
    for writer in sorted({row.writer for row in rows}):
        own = b"".join(records.encode(row) for row in rows if row.writer == writer)
        store.write(life.job, host="node-0", writer=str(uuid.uuid4()), attempt=0, offset=0, time=1.7e9, lines=own)

    def told(checkpoint: str) -> str:
        path.write_text(f"name: x\nengine: local\ncommand: [python, train.py]\ncheckpoint: {checkpoint}\n")
        return advice(store, read_training_job(path))

    near, far = told("{every: 5s, like: planted}"), told("{every: 1h, like: planted}")
    assert "would be best" in near
    assert not near.startswith("warning")
    assert far.startswith("warning")
    assert "less is useful" in far
    assert "was not compared" in told("{every: 5s}")
    assert "every is 'often'" in _refused(path, "checkpoint: {every: often}")


def _refused(path: Path, line: str) -> str:
    path.write_text(f"name: x\nengine: local\ncommand: [python, train.py]\n{line}\n")
    with pytest.raises(TachoscopeError) as error:
        read_training_job(path)
    return str(error.value)


def test_a_key_is_of_one_job(tmp_path: Path) -> None:
    store, path = Store(str(tmp_path / "store")), tmp_path / "training_job.yaml"
    path.write_text("name: x\nengine: local\ncommand: [python, train.py]\n")
    submission.submit(store, read_training_job(path), key="k")
    path.write_text("name: y\nengine: local\ncommand: [python, train.py]\n")

    with pytest.raises(TachoscopeError, match="the key 'k' is that of training job 'x'"):
        submission.submit(store, read_training_job(path), key="k")


def test_an_attempt_runs_only_the_specification_that_was_submitted(tmp_path: Path) -> None:
    path = tmp_path / "training_job.yaml"
    path.write_text("name: x\ncommand: [sh, -c, 'touch ran']\n")
    job, store = read_training_job(path), str(tmp_path / "store")
    TrainingJobs(Store(store)).submit(SubmittedJob(job=job, key="k", submitted_at=1.0))
    other = [*attempt.words(store, job, 0)[3:-1], "0" * 64]

    with pytest.raises(TachoscopeError, match="is not the one that was submitted"):
        attempt.main(other)

    assert not (tmp_path / "ran").exists()


def test_a_command_gets_its_checkpoint_its_nodes_and_its_secrets(tmp_path: Path) -> None:
    path, secret = tmp_path / "training_job.yaml", tmp_path / "token"
    secret.write_text("s3cret\n")
    path.write_text(WHOLE.replace("/run/secrets/hf_token", str(secret)))
    job = read_training_job(path)

    first, later = (attempt.command_of(job, one, {"SLURM_JOB_NODELIST": "gpu[3-6]"}) for one in ("", "ckpt-7.pt"))
    environment = attempt.environment_of(job, "ckpt-7.pt", {"PATH": "/bin"}, 3)

    assert first == ["torchrun", "--nnodes=4", "train.py"]
    assert later == [*first, "--resume", "ckpt-7.pt"]
    own = {
        "TACHOSCOPE_CHECKPOINT": "ckpt-7.pt",
        "TACHOSCOPE_TRAINING_ATTEMPT": "3",
        "TACHOSCOPE_DATA_SNAPSHOT": "pile@v3",
    }
    assert environment == {"PATH": "/bin", "OMP_NUM_THREADS": "8", "HF_TOKEN": "s3cret", **own}
    secret.unlink()
    with pytest.raises(TachoscopeError, match="HF_TOKEN cannot be read"):
        attempt.environment_of(job, "", {}, 0)


GONE = EngineState("ended", "FAILED")
LOST = EngineState("ended", "NODE_FAIL", ("node3",), by_engine=True)


def _failure(cause: str = "killed", host: str = "node2", location: str = "", policy: str = "restart") -> Failure:
    return Failure(attempt=0, time=1.0, rank=1, host=host, cause=cause, location=location, policy=policy)  # type: ignore[arg-type]


def _judged(*, steps: list[int], state: EngineState = GONE, code: int | None = 1, failure: Failure | None = None, **more: object):  # type: ignore[no-untyped-def]
    suspects = more.pop("suspects", [""] * len(steps))
    shard = str(more.pop("quarantined", ""))
    before = [
        Attempt(number=place, intended_at=0.0, highest_step=step, failure=_failure(host=suspect))
        for place, (step, suspect) in enumerate(zip(steps[:-1], suspects, strict=False))  # type: ignore[arg-type]
    ]
    this = Attempt(number=len(before), intended_at=0.0)
    end = None if code is None else AttemptEnd(started_at=0.0, ended_at=1.0, exit_code=code, **more)  # type: ignore[arg-type]
    ended = Ended(end=end, state=state, failure=failure, highest_step=steps[-1], quarantined=shard)
    return judge(RestartPolicy(most_attempts=6, delay_seconds=10.0), before, this, ended, cancelled=False)


@pytest.mark.parametrize(
    ("verdict", "decision"),
    [
        (_judged(steps=[10], code=0), "completed"),
        (_judged(steps=[10], failure=_failure()), "restart"),
        (_judged(steps=[10], failure=_failure("exception", location="train.py:3", policy="stop")), "failed"),
        (_judged(steps=[10, 10, 10], failure=_failure("exception", policy="stop"), quarantined="/data/part-3"), "restart"),
        (_judged(steps=[0, 0, 0]), "failed"),
        (_judged(steps=[10, 10, 10], state=LOST, code=None), "restart"),
        (_judged(steps=[10], refused="none of the 3 checkpoints of job 'x' is sound"), "failed"),
        (_judged(steps=[10, 20, 30, 40, 50, 60], failure=_failure()), "failed"),
        (_judged(steps=[10], state=EngineState("ended", "CANCELLED", cancelled=True), code=None), "cancelled"),
    ],
)
def test_another_attempt_follows_only_where_it_can_help(verdict, decision: str) -> None:  # type: ignore[no-untyped-def]
    assert verdict.decision == decision
    assert verdict.reason


def test_attempts_wait_longer_while_there_is_no_progress_and_a_lost_node_does_not_count() -> None:
    assert _judged(steps=[10, 20], failure=_failure()).delay_seconds == 0.0
    assert _judged(steps=[20, 20], failure=_failure()).delay_seconds == 10.0
    assert _judged(steps=[20, 20], state=LOST, code=None).delay_seconds == 0.0


def test_a_host_is_left_out_when_it_was_lost_or_fails_a_second_time_without_a_line_of_code() -> None:
    assert _judged(steps=[10], state=LOST, code=None).excluded_hosts == ("node3",)
    assert _judged(steps=[10, 20], failure=_failure(), suspects=["node1"]).excluded_hosts == ()
    assert _judged(steps=[10, 20], failure=_failure(), suspects=["node2"]).excluded_hosts == ("node2",)
    assert _judged(steps=[10, 20], failure=_failure(location="train.py:3"), suspects=["node2"]).excluded_hosts == ()
    told = Failure(attempt=0, time=1.0, rank=1, host="node2", cause="killed", signal="SIGTERM")
    assert _judged(steps=[10, 20], failure=told, suspects=["node2"]).excluded_hosts == ()


def test_of_pods_that_failed_the_node_is_left_out_by_the_engines_name() -> None:
    pods = [{f"x-{number}-node-0-0": "gpu-7"} for number in range(2)]
    first, second = (
        Attempt(number=number, intended_at=0.0, highest_step=10 * number, hosts=hosts, failure=_failure(host=next(iter(hosts))))
        for number, hosts in enumerate(pods)
    )
    ended = Ended(end=None, state=GONE, failure=second.failure, highest_step=10)

    assert judge(RestartPolicy(), [first], second, ended, cancelled=False).excluded_hosts == ("gpu-7",)
