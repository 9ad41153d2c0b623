"""Forgeries: what a user of the machine can leave in a spool and a store that other users have too. For `test_attack`.

Run as that user: `attacker.py PLACE`, where `PLACE/spool` and `PLACE/store` are. It knows what everybody can read: the victim's
jobs in the store, with their writers and hosts. A forgery that the kernel refuses is none, and is left out of what it prints: the
names of those that it planted, and the number of mutated records.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from test_odd_records import service, training

VICTIM_JOB = "resnet"
MARKUP = "\x00\x1b[31m\x1b]0;owned\x07<script>alert(1)</script>[red]{{x}}](javascript:x)\n$(id)"
MUTATED_RECORDS = 10_000
MUTATED_IN_A_JOB = 500
_HUGE = "9" * 400


class Ground:
    """Where the forgeries go. `victim`: lines that the store has of the victim's job; `writer`: who wrote them."""

    def __init__(self, place: Path) -> None:
        self.place, self.spool, self.store = place, place / "spool", place / "store"
        objects = sorted((self.store / "jobs" / VICTIM_JOB).rglob("*.jsonl.gz"))
        self.objects = objects
        self.victim = [json.loads(line) for path in objects for line in gzip.decompress(path.read_bytes()).splitlines()]
        self.writer = next(row["writer"] for row in self.victim if row["kind"] == "StepDone")

    def directory(self, name: str = "", mode: int = 0o755) -> Path:
        """Make a directory in the spool."""
        made = self.spool / (name or f"run-{uuid.uuid4()}")
        made.mkdir(mode=mode)
        made.chmod(mode)
        return made

    def segment(self, *lines: bytes, writer: str = "", directory: Path | None = None) -> Path:
        """Write a segment of these lines."""
        path = (directory or self.directory()) / f"{writer or uuid.uuid4()}-000000.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    def object(self, job: str, content: bytes, *, name: str = "", host: str = "h") -> Path:
        """Write an object of records into the store."""
        folder = self.store / "jobs" / job / "records" / f"date={time.strftime('%Y-%m-%d', time.gmtime())}" / f"host={host}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (name or f"{uuid.uuid4()}-a0-{0:016d}.jsonl.gz")
        path.write_bytes(content)
        return path

    def both(self, job: str, *rows: dict[str, Any] | bytes) -> None:
        """Write records of a job into the spool and, as an own job's, into the store."""
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        self.segment(*lines)
        if job != VICTIM_JOB:
            self.object(job, gzip.compress(b"".join(line + b"\n" for line in lines)))


def row(kind: str = "JobStarted", job: str = VICTIM_JOB, **fields: Any) -> dict[str, Any]:
    """Return a record as a process of now would write it."""
    more: dict[str, dict[str, Any]] = {
        "JobStarted": {"world_size": 1, "pid": os.getpid()},
        "StepDone": {"step": 1, "wall_seconds": 1.0, "phase_seconds": {"forward": 1.0}},
        "JobEnded": {"status": "left"},
    }
    own = {"job": job, "attempt": 0, "writer": str(uuid.uuid4()), "seq": 0, "rank": 0, "local_rank": 0, "host": "h"}
    now = {"time": time.time(), "monotonic_ns": time.monotonic_ns()}
    return {"kind": kind, **own, **now, **more.get(kind, {}), **fields}


Forge = Callable[[Ground], object]
FORGERIES: dict[str, Forge] = {}


def forgery(name: str) -> Callable[[Forge], Forge]:
    """Put a function on the list."""

    def listed(function: Forge) -> Forge:
        assert name not in FORGERIES
        FORGERIES[name] = function
        return function

    return listed


def _of_victim(kind: str, **fields: Any) -> Forge:
    return lambda ground: ground.segment(json.dumps(row(kind, **fields)).encode())


def _own(job: str, kind: str, **fields: Any) -> Forge:
    return lambda ground: ground.both(job, row(job=job), row(kind, job, seq=1, **fields))


# Said of the victim's job. Its owner is known, so nothing of it is taken.
FORGERIES |= {
    "a later attempt of the victim's job": _of_victim("JobStarted", attempt=7),
    "the launcher's word that the victim's job failed": _of_victim(
        "JobEnded", rank=-1, status="failed", reason="forged", exit_code=1
    ),
    "a worker of the victim's that failed": _of_victim("WorkerFailed", rank=-1, reason="forged", failed_rank=0, failed_writer="x"),
    "a worker of the victim's that hangs": _of_victim("WorkerHung", rank=-1, since_time=1.0, step=1, failed_rank=0, why="forged"),
    "an out-of-memory kill of the victim's": _of_victim("OutOfMemory", rank=-1, failed_rank=0, limit_of="forged"),
    "an exception of the victim's": _of_victim("ProcessFailed", rank=-1, failed_rank=0, how="exception", exception="Forged"),
    "an end of the victim's that torchrun saw": _of_victim("ProcessExited", rank=-1, exited_rank=0, exit_code=1),
    "a notice of preemption for the victim's job": _of_victim("PreemptionNotice", rank=-1, source="sigterm"),
    "the victim's job as a service": _of_victim("ServiceStarted", pid=1, model="m"),
    "a request to the victim's job": _of_victim("RequestDone", request="1", wall_seconds=9.0, phase_seconds={}, outcome="error"),
    "numbers of the victim's that are not finite": _of_victim("IntegrityEvent", step=1, check="loss", not_finite=["loss"]),
    "a trace of the victim's job": _of_victim("TraceCaptured", reference="../../../etc/passwd", bytes=9),
    "a record of the victim's in the year 2286": _of_victim("StepDone", time=1e10, monotonic_ns=1 << 62),
}

# Said of jobs of the attacker's own: taken, and harmless to the reader.
FORGERIES |= {
    "a process of another user, by its number": _own("pids", "JobStarted", pid=1, process_time=1.0),
    "a world of a million ranks": _own("world", "JobStarted", world_size=1 << 20, layout={"dp": 1 << 20}),
    "groups of ten thousand ranks": _own("groups", "JobStarted", groups={"dp": [list(range(10_000))] * 10}),
    "a step of the highest number": _own("steps", "StepDone", step=1 << 53),
    "a sequence that jumps": lambda ground: ground.both(
        "jumps", *(row("StepDone", "jumps", seq=seq, step=2) for seq in (0, 1 << 53, 5, 5))
    ),
    "checkpoint files of the machine's": _own(
        "etc", "CheckpointSaved", step=1, blocking_seconds=0.0, bytes=9, reference="/etc/shadow"
    ),
    "a checkpoint that never ends": _own(
        "zero", "CheckpointManifest", step=1, reference="/dev/zero", shards=[{"bytes": 1 << 50, "checksum": "crc32c:0"}]
    ),
    "a manifest that climbs": _own(
        "climb", "CheckpointManifest", step=1, reference="/tmp", shards=[{"path": "../etc/shadow", "bytes": 1, "checksum": "x:1"}]
    ),
    "ten thousand long paths": _own(
        "paths",
        "CheckpointManifest",
        step=1,
        reference="/p",
        shards=[{"path": f"{n}" + "p" * 80, "bytes": 1, "checksum": "x:1"} for n in range(8_000)],
    ),
    "ten thousand signals": _own("signals", "Heartbeat", step=1, signals={f"s{n}": 1e18 for n in range(10_000)}),
    "lines of user code of 900 kB": _own(
        "where", "Heartbeat", step=1, where={"forward": {"w" * 4000 + str(n): 9 for n in range(220)}}
    ),
    "times that a loader never had": _own("ages", "Heartbeat", step=1, window_seconds=1e10, signals={"cores": -1e18}),
    "staleness without end": _own("stale", "UpdatesApplied", staleness={str(n): 1 << 53 for n in range(10_000)}),
    "an engine that does all at once": _own("engine", "EngineWindow", window_seconds=1e10, state_seconds={"busy": 1e10, "x": 1e10}),
    "a restore of the victim's file": _own("restore", "CheckpointRestored", blocking_seconds=1e10, reference="/proc/1/mem"),
    "signs that are markup": _own("markup", "ShardFailed", shard=MARKUP, error=MARKUP),
    "a model that is markup": _own("model", "ServiceStarted", pid=1, model=MARKUP, version=MARKUP, role="server"),
    "a host that climbs": _own("host", "StepDone", host="../../../../resnet"),
    "a host that is markup": _own("hostmarkup", "StepDone", host=MARKUP[:200]),
}


@forgery("a newer checkpoint of the victim's job")
def _checkpoint(ground: Ground) -> None:
    evil = ground.place / "attacker" / "evil.pt"
    evil.write_bytes(b"evil")
    saved = {"step": 10**6, "reference": str(evil), "attempt": 99}
    shards = [{"bytes": 4, "checksum": "sha256:00"}]
    ground.segment(
        *(
            json.dumps(one).encode()
            for one in (
                row("CheckpointSaved", blocking_seconds=0.1, bytes=4, **saved),
                row("CheckpointManifest", shards=shards, seq=1, **saved),
                row("CheckpointVerified", rank=-1, sound=False, fault="forged", seq=2, **saved),
            )
        )
    )


@forgery("the victim's own records, changed, by the victim's writer")
def _same_writer(ground: Ground) -> None:
    lines = (json.dumps({**one, "wall_seconds": 9e3, "phase_seconds": {"forward": 9e3}}).encode() for one in ground.victim)
    ground.segment(*lines, writer=ground.writer)


@forgery("a job of one's own that goes on as the victim's")
def _second_line(ground: Ground) -> None:
    ground.both(
        "mine", row(job="mine"), *({**one, "attempt": 0} for one in ground.victim), row("JobEnded", rank=-1, status="failed")
    )


@forgery("shards of the victim's that failed on two ranks")
def _shards(ground: Ground) -> None:
    for rank in (0, 1):
        ground.segment(json.dumps(row("ShardFailed", rank=rank, shard="/data/1", error="OSError")).encode())


@forgery("an agent's directory")
def _agent_directory(ground: Ground) -> None:
    directory = ground.directory(f"agent-{uuid.uuid4()}")
    ground.segment(json.dumps(row("JobEnded", rank=-1, status="failed")).encode(), directory=directory)


def _raw(*lines: bytes) -> Forge:
    return lambda ground: ground.both("raw", row(job="raw"), *lines)


def _with(name: str, value: str) -> bytes:
    """Return a step of job `raw` in which a field has this text as its JSON."""
    return json.dumps({**row("StepDone", "raw"), name: "VALUE"}).replace('"VALUE"', value).encode()


_NUMBERS = (_HUGE, f"-{_HUGE}", f"1e{_HUGE}", "1e308", "1e400", "-1e308", "NaN", "Infinity", "-Infinity", "-1", "1.5", "true")
_FIELDS = ("time", "monotonic_ns", "attempt", "seq", "rank", "step", "wall_seconds", "phase_seconds", "job", "writer", "host")
_TYPES = ("null", "[]", "{}", '""', '"\\u0000"', '"\\ud800"', "[[[[]]]]", '{"a":{"a":[]}}', '"x"', "false")
FORGERIES |= {
    "numbers that are none": _raw(*(_with(name, value) for name in _FIELDS for value in _NUMBERS)),
    "fields of other types": _raw(*(_with(name, value) for name in _FIELDS for value in _TYPES)),
    "a text of 1 MB": _raw(_with("host", json.dumps("x" * 1_000_000)), _with("writer", json.dumps("x" * 1_000_000))),
    "JSON a hundred thousand deep": _raw(
        b"[" * 100_000, b'{"kind":' * 100_000, _with("phase_seconds", "[" * 50_000 + "]" * 50_000)
    ),
    "keys that are there twice": _raw(_with("step", '1,"job":"resnet","job":"resnet","kind":"JobEnded","kind":"StepDone"')),
    "bytes that are not text": _raw(bytes(range(256)).replace(b"\n", b""), b"\xff\xfe" * 9, _with("host", '"\xff"')),
    "a million empty lines": lambda ground: ground.segment(*(b"" for _ in range(1_000_000))),
    "twenty thousand jobs": lambda ground: ground.segment(
        *(b'{"job":"j%d","attempt":0,"host":"h","time":1}' % n for n in range(20_000))
    ),
    "names of jobs that climb": lambda ground: [
        ground.segment(json.dumps(row(job=name)).encode())
        for name in ("../resnet", "a/../../resnet", "..", ".", "", "-rf", MARKUP, "a" * 257, "resnet\n", "resnet/")
    ],
    "a line of 100 MB": lambda ground: _sparse(ground.segment(), 100 << 20),
    "a segment of 1 TiB": lambda ground: _sparse(ground.segment(json.dumps(row(job="sparse")).encode()), 1 << 40),
}


def _sparse(path: Path, size: int) -> None:
    os.truncate(path, size)


# --- not a file, where one is expected -------------------------------------------------------------------------------


def _places(ground: Ground) -> list[Path]:
    """Return paths at which a segment, and an object of the store, are looked for."""
    name = f"{uuid.uuid4()}-000000.jsonl"
    there = ground.object(f"places{len(list((ground.store / 'jobs').iterdir()))}", b"")
    there.unlink()
    return [ground.directory() / name, there]


@forgery("links to what never ends and to what is the victim's")
def _links(ground: Ground) -> None:
    for target in ("/dev/zero", "/etc/shadow", "/proc/self/mem", *map(str, ground.objects[:1]), "/nowhere"):
        for path in _places(ground):
            path.symlink_to(target)
    (ground.spool / f"run-{uuid.uuid4()}").symlink_to(ground.place / "victim")


@forgery("pipes that nobody writes to")
def _pipes(ground: Ground) -> None:
    for path in _places(ground):
        os.mkfifo(path)


@forgery("sockets")
def _sockets(ground: Ground) -> None:
    for path in _places(ground):
        os.chdir(path.parent)
        socket.socket(socket.AF_UNIX).bind(path.name)


@forgery("directories in place of files")
def _directories(ground: Ground) -> None:
    for path in _places(ground):
        path.mkdir()


@forgery("files and directories that are closed")
def _closed(ground: Ground) -> None:
    for path in _places(ground):
        path.write_bytes(b"{}")
        path.chmod(0)
    ground.directory(mode=0)


@forgery("thousands of directories, of odd names and deep ones")
def _many_directories(ground: Ground) -> None:
    for name in ("\x1b[31m", "a\nb", " ", "<b>", "x" * 250):
        ground.directory(name)
    os.mkdir(os.fsencode(ground.spool) + b"/\xff\xfe")
    for number in range(2_000):
        ground.directory(f"run-{number}")
    deep = ground.directory()
    for _ in range(100):
        deep /= "run-0"
        deep.mkdir()


@forgery("directories with a record each, more than are followed")
def _full_directories(ground: Ground) -> None:
    for number in range(300):
        ground.segment(json.dumps(row(job=f"full{number}")).encode())


@forgery("thousands of files in a directory")
def _many_files(ground: Ground) -> None:
    directory = ground.directory()
    for number in range(2_000):
        ground.segment(json.dumps(row(job="many", rank=number)).encode(), directory=directory)


@forgery("locks that are not what they should be")
def _locks(ground: Ground) -> None:
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)):
        directory = ground.directory()
        ground.segment(json.dumps(row(job="locks")).encode(), directory=directory)
        make(directory / "shipper.lock")
    os.mkfifo(ground.spool / "agent.lock")


@forgery("marks of a run that are directories")
def _marks(ground: Ground) -> None:
    directory = ground.directory()
    for name in ("notice.json", "asks", "loaded-torch", ".pod"):
        (directory / name).mkdir()


@forgery("a quarantine list of the victim's")
def _quarantine(ground: Ground) -> None:
    folder = ground.spool / "quarantine"
    folder.mkdir(exist_ok=True)
    (folder / f"{VICTIM_JOB}.json").write_text(json.dumps({"job": VICTIM_JOB, "shards": {"/data/1": {"quarantined": 9e9}}}))
    os.mkfifo(folder / "bert.json")


# --- the store ------------------------------------------------------------------------------------------------------------


@forgery("an object that unpacks to 8 GiB")
def _bomb(ground: Ground) -> None:
    ground.object("bomb", gzip.compress(b"\n" * (80 << 20)) * 100)


@forgery("objects of millions of short lines")
def _short_lines(ground: Ground) -> None:
    for line, size in {b"\n": 15 << 20, b"xy\n": 3 << 20, b'{"kind":"x"}\n': 1 << 20}.items():
        ground.object("short", gzip.compress(line * (size // len(line))))


@forgery("folders of the store that are deep")
def _deep_folders(ground: Ground) -> None:
    folder = ground.object("deep", b"").parent
    for _ in range(1_500):
        os.chdir(folder)
        folder = Path("d")
        folder.mkdir()


@forgery("objects that are cut, empty, or something else")
def _cut(ground: Ground) -> None:
    whole = gzip.compress(json.dumps(row(job="cut")).encode() + b"\n")
    for content in (whole[:-9], b"", b"no gzip", whole + b"x", whole * 2):
        ground.object("cut", content)


@forgery("an object of 1 TiB")
def _sparse_object(ground: Ground) -> None:
    _sparse(ground.object("sparse", b""), 1 << 40)


@forgery("links in the store to the victim's job")
def _job_links(ground: Ground) -> None:
    jobs = ground.store / "jobs"
    (jobs / "alias").symlink_to(jobs / VICTIM_JOB)
    ground.object("reports", gzip.compress(json.dumps(row(job="reports")).encode() + b"\n"))
    for name in ("reports", "quarantine", "requests", "traces"):
        (jobs / "reports" / name).symlink_to(jobs / VICTIM_JOB / name)
    (jobs / "records").mkdir()
    (jobs / "records" / "records").symlink_to(jobs / VICTIM_JOB / "records")
    (jobs / "records" / "owner.json").write_text(json.dumps({"uid": os.getuid()}))
    ground.segment(json.dumps(row(job="records")).encode(), json.dumps(row("JobEnded", rank=-1, status="failed")).encode())
    (jobs / "loop").symlink_to(jobs / "loop")
    (jobs / "up").symlink_to(jobs)


@forgery("owners that are none")
def _owners(ground: Ground) -> None:
    jobs = ground.store / "jobs"
    for number, content in enumerate(('{"uid":0}', f'{{"uid":{_HUGE}}}', "[" * 100_000, "", '{"uid":"root"}')):
        ground.segment(json.dumps(row(job=f"owner{number}")).encode())
        ground.object(f"owner{number}", b"")
        (jobs / f"owner{number}" / "owner.json").write_text(content)
    for name, make in {"pipe": os.mkfifo, "endless": lambda path: os.symlink("/dev/zero", path), "folder": os.mkdir}.items():
        ground.segment(json.dumps(row(job=f"owner-{name}")).encode())
        ground.object(f"owner-{name}", b"")
        make(jobs / f"owner-{name}" / "owner.json")


@forgery("objects that are named as the victim's")
def _object_names(ground: Ground) -> None:
    content = gzip.compress(b"".join(json.dumps({**one, "wall_seconds": 5.0}).encode() + b"\n" for one in ground.victim))
    for path in ground.objects:
        ground.object("named", content, name=path.name, host="other")
    ground.object("named", content, name=f"..-a{_HUGE[:200]}-{'9' * 20}.jsonl.gz")


@forgery("reports, lists, orders and traces of nonsense")
def _documents(ground: Ground) -> None:
    job = ground.store / "jobs" / "documents"
    ground.object("documents", gzip.compress(json.dumps(row(job="documents")).encode() + b"\n"))
    nonsense = (b"[" * 100_000, b"{}", b"\xff", gzip.compress(b" " * (80 << 20)), b"null", MARKUP.encode())
    for folder, suffix in (("reports", ".json"), ("quarantine", ".json.gz"), ("requests", ".json"), ("traces/all", ".json")):
        (job / folder).mkdir(parents=True)
        for number, content in enumerate(nonsense):
            (job / folder / f"{number}{suffix}").write_bytes(content)
        os.mkfifo(job / folder / f"pipe{suffix}")
        (job / folder / f"endless{suffix}").symlink_to("/dev/zero")


@forgery("names of jobs in the store that are none")
def _job_folders(ground: Ground) -> None:
    for name in ("\x1b[31mred", "a\nb", "<b>bold", "[red]x", "-rf", "x" * 250, "a b"):
        (ground.store / "jobs" / name / "records").mkdir(parents=True)
        (ground.store / "jobs" / name / "owner.json").write_text('{"uid":1}')
    os.mkdir(os.fsencode(ground.store) + b"/jobs/\xff")
    for number in range(500):
        (ground.store / "jobs" / f"empty{number}").mkdir()


# --- mutations ------------------------------------------------------------------------------------------------------------

_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    1.5,
    -0.0,
    1 << 53,
    1 << 63,
    -(1 << 70),
    1e300,
    1e10,
    "",
    "x",
    "\0",
    "9" * 400,
    [],
    {},
    MARKUP,
)


def mutated(line: bytes, chance: random.Random) -> bytes:
    """Return a record with something changed: a value, a type, a key, the end, or bytes in the midst."""
    how = chance.randrange(6)
    if how == 0:
        return line[: chance.randrange(len(line))]
    if how == 1:
        at = chance.randrange(len(line))
        return line[:at] + chance.randbytes(chance.randrange(4)).replace(b"\n", b"") + line[at + chance.randrange(4) :]
    document = json.loads(line)
    name = chance.choice([name for name in document if name != "job"])
    if how == 2:
        del document[name]
    elif how == 3:
        other = chance.choice(list(document))
        document[name], document[other] = document[other], document[name]
    elif how == 4 and isinstance(document[name], int | float):
        document[name] *= chance.choice((-1, 0, 0.5, 2, 1e3, 1e6, 1e12))
    else:
        document[name] = chance.choice(_VALUES)
    return json.dumps(document).encode()


def mutated_jobs(ground: Ground, chance: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    """Yield own jobs of the attacker's, of now: valid records of every kind, each followed by itself, changed."""
    streams = [ground.victim, *([json.loads(json.dumps(_plain(one))) for one in make()] for make in (training, service))]
    for number in range(MUTATED_RECORDS // MUTATED_IN_A_JOB):
        rows = streams[number % len(streams)]
        shift = time.time() - max(one["time"] for one in rows)
        lines = [json.dumps({**one, "job": f"mutated{number}", "time": one["time"] + shift}).encode() for one in rows]
        changed = itertools.islice(itertools.cycle(lines), MUTATED_IN_A_JOB)
        both = [line for sound in changed for line in (sound, mutated(sound, chance)) if chance.random() < 0.98 or line is sound]
        yield f"mutated{number}", both


def _plain(record: Any) -> dict[str, Any]:
    import msgspec

    return dict(msgspec.json.decode(msgspec.json.encode(record)))


def plant(place: Path, seed: int = 1) -> dict[str, Any]:
    """Plant everything; return what was."""
    ground = Ground(place)
    planted, refused = [], []
    for name, forge in FORGERIES.items():
        try:
            forge(ground)
            planted.append(name)
        except PermissionError:
            refused.append(name)
    count = 0
    for job, lines in mutated_jobs(ground, random.Random(seed)):
        ground.segment(*lines)
        ground.object(job, gzip.compress(b"\n".join(lines) + b"\n"))
        count += MUTATED_IN_A_JOB
    return {"planted": planted, "refused": refused, "mutated": count}


if __name__ == "__main__":
    json.dump(plant(Path(sys.argv[1])), sys.stdout)
