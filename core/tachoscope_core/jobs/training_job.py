"""A training job as its owner specifies it, in `training_job.yaml`: what runs, on what, from which checkpoint, and how often."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Section, Value, documents
from tachoscope_core.records.base import is_job_name
from tachoscope_core.redaction import names_secret, redact_arguments, redact_value

CHECKPOINT, NODES, MASTER = "{checkpoint}", "{nodes}", "{master}"
"""What stands in a command for the newest valid checkpoint, the number of nodes, and the first of them."""
EngineName = Literal["local", "slurm"]
ENGINES: tuple[EngineName, ...] = ("local", "slurm")
MOST_ATTEMPTS = 1000

_KEYS = (
    *("name", "engine", "command", "resume", "working_directory", "nodes", "gpus_per_node", "cpus_per_node", "memory_per_node"),
    *("time_limit", "environment", "secrets", "data", "restart", "slurm"),
)
_RESTART_KEYS = ("most_attempts", "hung_after", "delay", "most_delay")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEMORY = re.compile(r"\d+[KMGT]?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When an attempt that ended is followed by another one.

    Attributes:
        most_attempts: of the whole job. hung_seconds: an attempt that has hung for this long is ended; 0: never.
        delay_seconds: before an attempt that follows one without a new step; doubled each time, up to `most_delay_seconds`.
    """

    most_attempts: int = 20
    hung_seconds: float = 120.0
    delay_seconds: float = 10.0
    most_delay_seconds: float = 600.0


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A training job.

    Attributes:
        command: program and arguments of one node, without a shell. resume: arguments added once there is a valid checkpoint.
        cpus_per_node, gpus_per_node: 0: the engine's default. memory_per_node: as Slurm has it, such as `64G`; empty: the default.
        time_limit_seconds: of one attempt; 0: the engine's default.
        secrets: environment variables and the files that hold their values on the node that runs the job.
        snapshot, purpose: of the data that it reads, for policies and lineage.
        slurm_options: further options of sbatch, each `--name=value`.
    """

    name: str
    engine: EngineName
    command: tuple[str, ...]
    working_directory: str
    resume: tuple[str, ...] = ()
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_per_node: int = 0
    memory_per_node: str = ""
    time_limit_seconds: float = 0.0
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    snapshot: str = ""
    purpose: str = ""
    slurm_options: tuple[str, ...] = ()
    restart: RestartPolicy = RestartPolicy()

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: an engine only runs the job that was submitted."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


def read_training_job(path: Path, *, engine: str | None = None) -> TrainingJob:
    """Read a specification.

    Args:
        engine: in place of the file's.

    Raises:
        TachoscopeError: with file, line and key: it cannot be read, a key is unknown or has no valid value, or a secret is in it.
    """
    found = documents(path)
    if len(found) != 1:
        raise TachoscopeError(f"{path} has {len(found)} documents", fix="a file specifies one training job")
    section = found[0].section(_KEYS)
    restart = section.get("restart")
    data = section.get("data")
    data_section = data.section(("snapshot", "purpose")) if data else None
    directory = section.get("working_directory")
    return TrainingJob(
        name=_name(section.required("name", "write `name: resnet-50`")),
        engine=_engine(section.get("engine"), engine),
        command=_command(section.required("command", "write `command: [torchrun, --nproc-per-node=8, train.py]`")),
        resume=_resume(section.get("resume")),
        working_directory=str((path.parent / (directory.text() if directory else ".")).resolve()),
        nodes=_count(section, "nodes", 1, least=1),
        gpus_per_node=_count(section, "gpus_per_node", 0),
        cpus_per_node=_count(section, "cpus_per_node", 0),
        memory_per_node=_memory(section.get("memory_per_node")),
        time_limit_seconds=_duration(section, "time_limit", 0.0),
        environment=_environment(section.get("environment")),
        secrets=_secrets(section.get("secrets")),
        snapshot=_text(data_section, "snapshot"),
        purpose=_text(data_section, "purpose"),
        slurm_options=_slurm_options(section.get("slurm")),
        restart=_restart(restart.section(_RESTART_KEYS)) if restart else RestartPolicy(),
    )


def _name(value: Value) -> str:
    if not is_job_name(value.text()):
        raise value.error("is not usable as a name", "use letters, digits, '.', '_' or '-', beginning with a letter or digit")
    return value.text()


def _engine(value: Value | None, wanted: str | None) -> EngineName:
    word = wanted or (value.text() if value else "local")
    for name in ENGINES:
        if name == word:
            return name
    problem, fix = f"{word!r} is not an engine", f"known are {', '.join(ENGINES)}"
    raise value.error(f"is {problem}", fix) if value and not wanted else TachoscopeError(problem, fix=fix)


def _command(value: Value) -> tuple[str, ...]:
    if not value.is_list:
        raise value.error("is not a list", "write one word an item: [python, train.py, --epochs=3]; no shell reads it")
    words = value.strings()
    if redact_arguments(words) != list(words):
        raise value.error("contains a secret", "read it from the environment, and name its file below `secrets`")
    return words


def _resume(value: Value | None) -> tuple[str, ...]:
    if value is None:
        return ()
    words = value.strings()
    if not any(CHECKPOINT in word for word in words):
        raise value.error(f"does not contain {CHECKPOINT}", f'write resume: [--resume, "{CHECKPOINT}"]')
    return words


def _count(section: Section, key: str, default: int, *, least: int = 0) -> int:
    value = section.get(key)
    if value is None:
        return default
    number = value.number()
    if number != int(number) or not least <= number <= 1_000_000:
        raise value.error(f"is {value.word()}", f"write a whole number of at least {least}")
    return int(number)


def _memory(value: Value | None) -> str:
    if value is None:
        return ""
    if not _MEMORY.fullmatch(value.word()):
        raise value.error(f"is {value.word()!r}, not an amount of memory", "write 64G, or a number of MiB")
    return value.word()


def _duration(section: Section, key: str, default: float) -> float:
    value = section.get(key)
    if value is None:
        return default
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value.word())
    if match is None:
        raise value.error(f"is {value.word()!r}, not a duration", "write 90s, 5m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def _text(section: Section | None, key: str) -> str:
    value = section.get(key) if section else None
    return value.text() if value else ""


def _environment(value: Value | None) -> dict[str, str]:
    found = {}
    for name, item in (value.section().values if value else {}).items():
        word = item.word()
        if not _VARIABLE.fullmatch(name):
            raise item.error("is not a name of an environment variable", "use letters, digits and '_'")
        if names_secret(name) or redact_value(name, word) != word:
            raise item.error("contains a secret", f"write its file: secrets: {{{name}: /run/secrets/{name.lower()}}}")
        found[name] = word
    return found


def _secrets(value: Value | None) -> dict[str, str]:
    found = {}
    for name, item in (value.section().values if value else {}).items():
        if not _VARIABLE.fullmatch(name):
            raise item.error("is not a name of an environment variable", "use letters, digits and '_'")
        if not Path(item.text()).is_absolute():
            raise item.error("is not an absolute path", "name the file that holds the value on the nodes")
        found[name] = item.text()
    return found


def _slurm_options(value: Value | None) -> tuple[str, ...]:
    found = []
    for name, item in (value.section().values if value else {}).items():
        if not re.fullmatch(r"[a-z][a-z-]*", name):
            raise item.error("is not a long option of sbatch", "write `partition: train` for --partition=train")
        if name in {"wrap", "job-name", "comment", "output", "requeue", "nodes", "chdir", "parsable", "test-only"}:
            raise item.error("is an option that tachoscope sets", "leave it out")
        found.append(f"--{name}={item.word()}")
    return tuple(found)


def _restart(section: Section) -> RestartPolicy:
    default = RestartPolicy()
    most = _count(section, "most_attempts", default.most_attempts, least=1)
    if most > MOST_ATTEMPTS:
        raise section.values["most_attempts"].error(f"is {most}", f"write at most {MOST_ATTEMPTS}")
    return RestartPolicy(
        most_attempts=most,
        hung_seconds=_duration(section, "hung_after", default.hung_seconds),
        delay_seconds=_duration(section, "delay", default.delay_seconds),
        most_delay_seconds=_duration(section, "most_delay", default.most_delay_seconds),
    )
