"""Reads the specification of a training job, `training_job.yaml`; each error names the line and the key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import (
    ACTION_MODES,
    CHECKPOINT,
    ENGINES,
    MASTER,
    MOST_ATTEMPTS,
    NODES,
    ActionMode,
    ActionPolicy,
    EngineName,
    RestartPolicy,
    TrainingJob,
)
from tachoscope_core.jobs.training_job_engines import (
    ELSEWHERE,
    ENGINE_SECTIONS,
    check_engine,
    kubernetes_options,
    ray_options,
    slurm_options,
)
from tachoscope_core.located_yaml import Section, Value, documents, parsed
from tachoscope_core.records.base import is_job_name
from tachoscope_core.redaction import names_secret, redact_arguments, redact_value

_KEYS = (
    *("name", "engine", "command", "resume", "working_directory", "nodes", "gpus_per_node", "cpus_per_node", "memory_per_node"),
    *("time_limit", "environment", "secrets", "code", "checkpoint", "data", "restart", "actions", *ENGINE_SECTIONS),
)
_RESTART_KEYS = ("most_attempts", "hung_after", "delay", "most_delay")
_ACTION_KEYS = ("quarantine_shards", "checkpoint_interval", "most_actions")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_MEMORY = re.compile(r"\d+[KMGT]?")


def read_training_job(path: Path, *, engine: str | None = None) -> TrainingJob:
    """Read a specification.

    Args:
        engine: in place of the file's.

    Raises:
        TachoscopeError: with file, line and key: it cannot be read, a key is unknown or has no valid value, or a secret is in it.
    """
    return _training_job(documents(path), str(path), path.parent, engine)


def parse_training_job(text: bytes, origin: str) -> TrainingJob:
    """Read a specification that was sent from elsewhere: its paths are not looked for on this machine.

    Raises:
        TachoscopeError: as `read_training_job`, with `origin` in place of the file.
    """
    return _training_job(parsed(text, origin), origin, None, None)


def _training_job(found: Sequence[Value], origin: str, folder: Path | None, engine: str | None) -> TrainingJob:
    """folder: of the file, against which paths are resolved; None: the specification has no folder here."""
    if len(found) != 1:
        line = f":{found[1].line}" if found else ""
        raise TachoscopeError(f"{origin}{line} has {len(found)} documents", fix="a file specifies one training job")
    section = found[0].section(_KEYS)
    engine_name = _engine(section.get("engine"), engine)
    restart = section.get("restart")
    actions = section.get("actions")
    data = section.get("data")
    data_section = data.section(("snapshot", "project", "purpose")) if data else None
    checkpoint = section.get("checkpoint")
    checkpoint_section = checkpoint.section(("every", "like")) if checkpoint else None
    job = TrainingJob(
        name=_name(section.required("name", "write `name: resnet-50`")),
        engine=engine_name,
        command=_command(section.required("command", "write `command: [torchrun, --nproc-per-node=8, train.py]`")),
        resume=_resume(section.get("resume")),
        working_directory=_directory(section, folder, engine_name),
        nodes=_count(section, "nodes", 1, least=1),
        gpus_per_node=_count(section, "gpus_per_node", 0),
        cpus_per_node=_count(section, "cpus_per_node", 0),
        memory_per_node=_memory(section.get("memory_per_node")),
        time_limit_seconds=_duration(section, "time_limit", 0.0),
        environment=_environment(section.get("environment")),
        secrets=_secrets(section.get("secrets")),
        snapshot=_text(data_section, "snapshot"),
        code_commit=_commit(section.get("code")),
        checkpoint_seconds=_duration(checkpoint_section, "every", 0.0) if checkpoint_section else 0.0,
        checkpoint_like=_text(checkpoint_section, "like"),
        project=_text(data_section, "project"),
        purpose=_text(data_section, "purpose"),
        slurm_options=slurm_options(section.get("slurm")),
        kubernetes=kubernetes_options(section, engine_name),
        ray=ray_options(section, engine_name),
        restart=_restart(restart.section(_RESTART_KEYS)) if restart else RestartPolicy(),
        actions=_actions(actions.section(_ACTION_KEYS), engine_name) if actions else ActionPolicy(),
    )
    check_engine(section, job)
    return job


def _directory(section: Section, folder: Path | None, engine: EngineName) -> str:
    value = section.get("working_directory")
    if folder is None or engine in ELSEWHERE:
        if value is None:
            what = "is sent over the API" if folder is None else f"is for engine: {engine}"
            raise section.place.error(f"{what} and lacks working_directory", "name the folder on the nodes: an absolute path")
        if not Path(value.text()).is_absolute():
            raise value.error(f"is {value.text()!r}, which is not an absolute path", "name the folder as the nodes know it")
        return value.text()
    found = (folder / (value.text() if value else ".")).resolve()
    if value is not None and not found.is_dir():
        raise value.error(f"is {str(found)!r}, which is not a directory here", "name one that all nodes have")
    return str(found)


def _name(value: Value) -> str:
    if not is_job_name(value.text()):
        raise value.error("is not usable as a name", "use letters, digits, '.', '_' or '-', beginning with a letter or digit")
    return value.text()


def _engine(value: Value | None, wanted: str | None) -> EngineName:
    word = wanted or (value.text() if value else "local")
    for name in ENGINES:
        if name == word:
            return name
    fix = f"known are {', '.join(ENGINES)}"
    if value and not wanted:
        raise value.error(f"is {word!r}, which is not an engine", fix)
    raise TachoscopeError(f"{word!r} is not an engine", fix=fix)


def _command(value: Value) -> tuple[str, ...]:
    if not value.is_list:
        raise value.error("is not a list", "write one word an item: [python, train.py, --epochs=3]; no shell reads it")
    words = value.strings()
    for item, word, shown in zip(value.items(), words, redact_arguments(words), strict=True):
        if word != shown:
            raise item.error("contains a secret", "read it from the environment, and name its file below `secrets`")
    return _with_known_fields(value, words)


def _with_known_fields(value: Value, words: tuple[str, ...]) -> tuple[str, ...]:
    for item, word in zip(value.items() if value.is_list else [value], words, strict=True):
        for field in re.findall(r"\{[a-z_]+\}", word):
            if field not in (CHECKPOINT, NODES, MASTER):
                raise item.error(f"has {field}, which is not known", f"known are {CHECKPOINT}, {NODES}, {MASTER}")
    return words


def _resume(value: Value | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if not value.is_list:
        raise value.error(f"is {value.word()!r}, not a list of words", f'write resume: [--resume, "{CHECKPOINT}"]')
    words = value.strings()
    if not any(CHECKPOINT in word for word in words):
        raise value.error(f"does not contain {CHECKPOINT}", f'write resume: [--resume, "{CHECKPOINT}"]')
    return _with_known_fields(value, words)


def _count(section: Section, key: str, default: int, *, least: int = 0) -> int:
    value = section.get(key)
    return default if value is None else value.count(least=least)


def _memory(value: Value | None) -> str:
    if value is None:
        return ""
    if not _MEMORY.fullmatch(value.word()):
        raise value.error(f"is {value.word()!r}, not an amount of memory", "write 64G, or a number of MiB")
    return value.word()


def _duration(section: Section, key: str, default: float) -> float:
    value = section.get(key)
    return default if value is None else value.seconds()


def _commit(value: Value | None) -> str:
    if value is None:
        return ""
    commit = value.section(("commit",)).required("commit", "write code: {commit: 1a2b3c4}")
    if not _COMMIT.fullmatch(commit.word()):
        raise commit.error(f"is {commit.word()!r}, not a commit of git", "write 7 to 40 hexadecimal digits, in quotes")
    return commit.word()


def _text(section: Section | None, key: str) -> str:
    value = section.get(key) if section else None
    return value.text() if value else ""


def _environment(value: Value | None) -> dict[str, str]:
    found = {}
    for name, item in (value.section().values if value else {}).items():
        word = item.word()
        if not _VARIABLE.fullmatch(name):
            raise item.error("is not a name of an environment variable", "use letters, digits and '_'")
        parts = word.split()  # such as `host=h pass=...` of a connection
        if names_secret(name) or redact_value(name, word) != word or redact_arguments(parts) != parts:
            raise item.error("contains a secret", "write the path of a file that holds it, below `secrets`")
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


def _actions(section: Section, engine: EngineName) -> ActionPolicy:
    interval = section.get("checkpoint_interval")
    if interval is not None and engine in ELSEWHERE and _mode(interval) != "off":
        # The ranks agree in a folder of the working directory, whose name only the first node would know.
        raise interval.error(f"is not supported with engine: {engine}", "leave it out")
    return ActionPolicy(
        quarantine_shards=_mode(section.get("quarantine_shards")),
        checkpoint_interval=_mode(interval),
        most_actions=_count(section, "most_actions", ActionPolicy().most_actions),
    )


def _mode(value: Value | None) -> ActionMode:
    word = "off" if value is None else value.word()
    for mode in ACTION_MODES:
        if mode == word:
            return mode
    assert value is not None  # `off` is one of them
    raise value.error(f"is {word!r}", f"write one of {', '.join(ACTION_MODES)}")
