"""Two users of one machine: nothing that one leaves in the spool or the store touches a job of the other's. Needs root."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import environment
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.owner import Owner
from tachoscope_core.records.records import decode
from tachoscope_core.storage import shard_quarantine, spool
from tachoscope_core.storage.store import OtherContentError, OtherOwnerError, Store
from tachoscope_node.spool.exclusive_lock import take_spool

VICTIM, ATTACKER = 20_001, 20_002
POD = "11111111-2222-3333-4444-55555555555"
"""A pod's UID but for its last digit."""
WRITES = """
import os, sys, uuid
from pathlib import Path
sys.path.insert(0, {node_tests!r})
from checkpointing import save
from spool_writing import Process
from tachoscope_core.records import records; from tachoscope_core.storage import spool

def rank(directory, job="resnet", **more):
    process = Process(Path(directory), job=job, **more)
    process.start(pid=os.getpid())
    return process
"""
COMMAND_LINE = "import sys; from tachoscope_cli.main import main; sys.argv[0] = 'tachoscope'; sys.exit(main())"
TRAIN = "import tachoscope\nfor _ in range(5):\n    with tachoscope.phase('forward'): sum(range(1000))\n    tachoscope.step()\n"


@functools.cache
def interpreter() -> str:
    """Return a Python that every user can run: this one, or the system's of the same version; empty: there is none."""
    for path in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with contextlib.suppress(OSError):
            words = [path, "-c", "import encodings"]
            if not subprocess.run(words, user=VICTIM, group=VICTIM, extra_groups=[], capture_output=True, check=False).returncode:
                return path
    return ""


def run_as(user: int, *command: str, place: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command as another user, without any right of root's."""
    places = {"HOME": str(place / "home"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environ = environment(place, **places | extra)
    done = subprocess.run(
        command,
        env=environ,
        cwd=place,
        user=user,
        group=user,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@contextlib.contextmanager
def made_place() -> Iterator[Path]:
    """Make a folder with a spool that root made, a store of the victim's, and a home for each."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    folder = Path(tempfile.mkdtemp(prefix="neighbours-"))
    folder.chmod(0o755)
    if not interpreter():
        pytest.skip("another user cannot run this Python, nor is there one of the system's")
    spool.make_root(folder / "spool")
    for name, owner in (("store", VICTIM), ("home", VICTIM), ("victim", VICTIM), ("attacker", ATTACKER)):
        (folder / name).mkdir()
        os.chown(folder / name, owner, owner)
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # Python's own does not get to the end of folders that are deep


@pytest.fixture
def place() -> Iterator[Path]:
    with made_place() as folder:
        yield folder


def python(user: int, place: Path, script: str, **values: object) -> subprocess.CompletedProcess[str]:
    """Run a script as a user, with what writes records at hand."""
    begin = WRITES.format(node_tests=str(Path(__file__).parents[1] / "node"))
    given = "".join(f"{name} = {value!r}\n" for name, value in {"place": str(place), **values}.items())
    command = sys.executable if user == 0 else interpreter()
    done = run_as(user, command, "-c", begin + given + textwrap.dedent(script), place=place)
    assert done.returncode == 0, done.stderr
    return done


def victim_trains(place: Path, job: str = "resnet") -> subprocess.CompletedProcess[str]:
    return train(VICTIM, place, job, place / "store")


def train(user: int, place: Path, job: str, store: Path) -> subprocess.CompletedProcess[str]:
    """Run a small training of a user's under the probe."""
    (place / "train.py").write_text(TRAIN)
    run = ("run", "--job", job, "--store", str(store), "--", interpreter(), str(place / "train.py"))
    return run_as(user, interpreter(), "-c", COMMAND_LINE, *run, place=place)


FORGED = """
    process = rank(f"{place}/spool/run-forged")
    save(process, Path(f"{place}/attacker/evil.pt"), b"evil" * 100, step=10**6)
    process.end()
"""


def test_a_forged_checkpoint_is_not_what_verify_names(place: Path) -> None:
    python(VICTIM, place, 'p = rank(f"{place}/spool/run-own"); save(p, Path(f"{place}/victim/own.pt"), b"own", step=1); p.end()')
    victim_trains(place)
    python(ATTACKER, place, FORGED)
    assert victim_trains(place).returncode == 0

    store = ("--store", str(place / "store"), "--job", "resnet")
    done = run_as(VICTIM, interpreter(), "-c", COMMAND_LINE, "verify", "--last", *store, place=place)

    assert done.stdout.strip() == str(place / "victim" / "own.pt")
    assert (place / "spool" / "run-forged").is_dir()  # it is the attacker's, and nobody ships it


def test_a_file_that_another_user_put_in_the_place_of_a_checkpoint_is_refused(place: Path) -> None:
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    python(VICTIM, place, 'p = rank(f"{place}/spool/run-own"); save(p, Path(f"{place}/shared/step.pt"), b"own", step=1); p.end()')
    victim_trains(place)
    python(ATTACKER, place, 'target = Path(f"{place}/shared/step.pt"); target.unlink(); target.write_bytes(b"own")')

    done = run_as(
        VICTIM,
        interpreter(),
        "-c",
        COMMAND_LINE,
        "verify",
        "--last",
        "--store",
        str(place / "store"),
        "--job",
        "resnet",
        place=place,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert f"belongs to user {ATTACKER}" in done.stderr


def shared_store(place: Path) -> Path:
    """Make a store into which every user may put jobs."""
    store = place / "shared"
    (store / "jobs").mkdir(parents=True)
    (store / "jobs").chmod(0o1777)
    return store


def test_verify_names_no_checkpoint_of_a_job_that_another_user_took_first(place: Path) -> None:
    store = shared_store(place)
    for user, job, folder in ((VICTIM, "resnet", "victim"), (ATTACKER, "future", "attacker")):
        process = f'p = rank(f"{{place}}/spool/run-{job}", job="{job}")'
        python(user, place, f'{process}; save(p, Path(f"{{place}}/{folder}/step.pt"), b"x", step=1); p.end()')
        train(user, place, job, store)

    def last(*words: str) -> subprocess.CompletedProcess[str]:
        return run_as(VICTIM, interpreter(), "-c", COMMAND_LINE, "verify", "--last", "--store", str(store), *words, place=place)

    other = last("--job", "future")
    assert (other.returncode, other.stdout) == (1, "")
    assert f"a job of user {ATTACKER}, not by yours" in other.stderr
    assert last("--job", "future", "--owner", str(ATTACKER)).stdout.strip() == str(place / "attacker" / "step.pt")
    assert last().stdout.strip() == str(place / "victim" / "step.pt")  # although the other job was written last


@pytest.mark.parametrize(
    ("mode", "owner"),
    [(0o755, None), (0o777, None), (0o777, {"uid": VICTIM})],
    ids=["closed", "open", "open, with a false owner"],
)
@pytest.mark.bar(but=("open, with a false owner",))
def test_a_jobs_folder_that_another_user_made_is_that_users(place: Path, mode: int, owner: dict[str, int] | None) -> None:
    store = shared_store(place)
    python(
        ATTACKER,
        place,
        f"""
        import json
        folder = Path({str(store)!r}, "jobs", "resnet")
        folder.mkdir()
        folder.chmod({mode})
        if {owner!r}:
            (folder / "owner.json").write_text(json.dumps({owner!r}))
        """,
    )
    done = train(VICTIM, place, "resnet", store)

    assert done.returncode == 0
    assert done.stderr.startswith(f"tachoscope: job 'resnet' in store {store} belongs to user {ATTACKER}")
    assert not list((store / "jobs" / "resnet").rglob("*.gz"))


def test_a_jobs_folder_that_every_user_may_write_to_is_not_used(place: Path) -> None:
    store = shared_store(place)
    assert train(VICTIM, place, "resnet", store).returncode == 0
    (store / "jobs" / "resnet").chmod(0o777)

    with pytest.raises(OtherOwnerError, match="every user may write to"):
        Store(str(store)).claim("resnet", Owner(VICTIM))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param('b\'{"job":"resnet","attempt":0,"host":"h","time":1e300}\\n\'', id="a time that no calendar has"),
        pytest.param('b\'{"job":"resnet","attempt":0,"host":"h","time":2.6e11}\\n\'', id="a time after the year 9999"),
        pytest.param('b\'\'.join(b\'{"job":"j%d","attempt":0,"host":"h","time":1}\\n\' % n for n in range(20000))', id="names"),
    ],
)
@pytest.mark.bar(but=("names",))
def test_nothing_in_the_spool_delays_or_breaks_another_users_run(place: Path, content: str) -> None:
    python(
        ATTACKER,
        place,
        f"""
        directory = Path(place, "spool", "run-" + str(uuid.uuid4()))
        directory.mkdir(mode=0o755)
        (directory / spool.segment_name(str(uuid.uuid4()), 0)).write_bytes({content})
        with open(directory / spool.segment_name(str(uuid.uuid4()), 0), "wb") as sparse:
            sparse.truncate(1 << 40)
        """,
    )

    done = victim_trains(place)

    assert done.returncode == 0
    assert Store(str(place / "store")).jobs() == ["resnet"]


def test_the_agent_takes_a_jobs_records_from_its_first_user_only_and_counts_the_others(place: Path) -> None:
    clock = FakeClock()
    agent = agent_of(place, clock=clock)
    python(VICTIM, place, 'p = rank(f"{place}/spool/run-own"); p.step(); p.end()')
    pass_seconds(agent, clock, 3)
    python(ATTACKER, place, FORGED + '    other = rank(f"{place}/spool/run-other", job="own"); other.step(); other.end()\n')
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_agent_rejected_total", "owner") == 1
    assert value(agent, "tachoscope_steps_total", "resnet", "0") == 1
    store = Store(str(place / "store"))
    assert {job: store.owner(job) for job in store.jobs()} == {"resnet": Owner(VICTIM), "own": Owner(ATTACKER)}
    assert not any(b"evil" in store.read(segment) for segment in store.segments("resnet"))
    agent.close()


def test_in_kubernetes_a_job_belongs_to_the_namespace_whose_pod_first_wrote_of_it(place: Path) -> None:
    clock = FakeClock()
    agent = agent_of(place, clock=clock)
    for number, directory in enumerate(["a_first", "b_other", "a_second"]):
        python(0, place, f'p = rank(f"{{place}}/spool/{directory}_{POD}{number}", rank={number}); p.step(); p.end()')
        pass_seconds(agent, clock, 3)
    false_name = f"a_false_{POD}3"  # made by a user, and not by the kubelet
    python(ATTACKER, place, f'p = rank(f"{{place}}/spool/{false_name}", rank=3); p.step(); p.end()')
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_agent_rejected_total", "owner") == 2
    store = Store(str(place / "store"))
    assert store.owner("resnet") == Owner(0, "a")
    assert {decode(line).rank for segment in store.segments("resnet") for line in store.read(segment).splitlines()} == {0, 2}
    agent.close()


def test_a_user_who_keeps_the_agent_reading_delays_no_word_on_anothers_job(place: Path) -> None:
    clock = FakeClock()
    agent = agent_of(place, clock=clock, limits={"bytes_per_second": 1 << 16})
    python(VICTIM, place, 'p = rank(f"{place}/spool/run-own"); p.step(); p.end()')
    python(
        ATTACKER,
        place,
        """
        for number in range(6):
            p = rank(f"{place}/spool/run-{number}", job="flood")
            segment = next(Path(f"{place}/spool/run-{number}").glob("*.jsonl"))
            segment.write_bytes(segment.read_bytes() * 50_000)
        """,
    )
    pass_seconds(agent, clock, 60)

    assert agent.tick()  # it is still reading
    (finished,) = [family for family in agent.families() if family.metric.name == "tachoscope_jobs_finished_total"]
    assert sum(count for _, count in finished.points) == 1  # and not that of the other
    agent.close()


def test_an_agent_that_was_started_again_knows_the_owner_from_the_store(place: Path) -> None:
    Store(str(place / "store")).claim("resnet", Owner(VICTIM))
    clock = FakeClock()
    agent = agent_of(place, clock=clock)
    python(ATTACKER, place, FORGED)
    pass_seconds(agent, clock, 3)

    assert list(Store(str(place / "store")).segments("resnet")) == []
    assert value(agent, "tachoscope_agent_errors_total", "refused") == 1
    agent.close()


def test_failed_shards_of_another_user_are_not_left_out(place: Path) -> None:
    clock = FakeClock()
    agent = agent_of(place, clock=clock)
    python(VICTIM, place, 'p = rank(f"{place}/spool/run-own"); p.step()')
    pass_seconds(agent, clock, 2)
    python(
        ATTACKER,
        place,
        """
        for number in (0, 1):
            p = rank(f"{place}/spool/run-{number}", rank=number, world_size=2)
            p.write(records.ShardFailed, shard="/data/part-1", error="OSError")
            p.end()
        """,
    )
    pass_seconds(agent, clock, 5)

    assert shard_quarantine.listed_names(shard_quarantine.load(shard_quarantine.path_of(place / "spool", "resnet"))) == frozenset()
    agent.close()


def test_an_object_of_the_store_is_written_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    key = {"host": "h", "writer": str(uuid.uuid4()), "attempt": 0, "offset": 0, "time": 1.0}
    path = store.write("resnet", lines=b"{}\n", **key)  # type: ignore[arg-type]

    assert store.write("resnet", lines=b"{}\n", **key) == path  # type: ignore[arg-type]
    with pytest.raises(OtherContentError):
        store.write("resnet", lines=b"[]\n", **key)  # type: ignore[arg-type]
    store.claim("resnet", Owner(VICTIM))
    with pytest.raises(OtherOwnerError, match=f"belongs to user {VICTIM}"):
        store.claim("resnet", Owner(ATTACKER))


def test_a_squatted_spool_and_lock_do_not_keep_roots_agent_out(place: Path) -> None:
    script = """
    import fcntl, time
    root = Path(place, "taken")
    root.mkdir(mode=0o777)
    lock = open(root / "agent.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(600)
    """
    place.chmod(0o777)
    here = f"import sys\nfrom pathlib import Path\nplace = {str(place)!r}\n" + textwrap.dedent(script)
    squatter = subprocess.Popen([interpreter(), "-c", here], user=ATTACKER, group=ATTACKER, stdout=subprocess.PIPE)
    try:
        assert squatter.stdout is not None
        squatter.stdout.readline()
        lock = take_spool(place / "taken")
        status = (place / "taken").stat()
        assert (status.st_uid, status.st_mode & 0o7777) == (0, 0o1777)
        os.close(lock)
    finally:
        squatter.kill()
        squatter.wait()


def test_the_first_watch_after_a_boot_leaves_room_for_other_users(place: Path) -> None:
    script = "import tachoscope\nwith tachoscope.watch(job='own'):\n    for _ in range(3): tachoscope.step()\n"
    for user in (VICTIM, ATTACKER):
        home = place / f"home-{user}"
        home.mkdir()
        os.chown(home, user, user)
        places = {"HOME": str(home), "TACHOSCOPE_STORE": str(home / "store"), "XDG_RUNTIME_DIR": str(home), "TACHOSCOPE_SPOOL": ""}
        done = run_as(user, interpreter(), "-c", script, place=place, **places)
        assert (done.returncode, done.stderr) == (0, "")
        assert Store(str(home / "store")).jobs() == ["own"]


def test_a_users_directories_in_the_spool_are_closed_to_others(place: Path) -> None:
    python(VICTIM, place, 'p = rank(f"{place}/spool/run-own"); p.step()')

    assert (place / "spool" / "run-own").stat().st_mode & 0o777 == 0o700
    names = python(ATTACKER, place, 'import json; print(json.dumps(sorted(os.listdir(f"{place}/spool"))))').stdout
    assert json.loads(names) == ["run-own"]
    refused = run_as(ATTACKER, "ls", str(place / "spool" / "run-own"), place=place)
    assert refused.returncode != 0
