"""What a run is made of: code, command, image, data, hyper-parameters, trackers. Read from files and the environment only.

Starts no process and asks no server, since it is read on the training thread, once, when the process begins to train. Secrets are
redacted (`tachoscope_core.redaction`), and each value and the whole are cut to a size that a record can hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tachoscope.arguments import ArgumentGuard
from tachoscope.lineage import tracker_runs
from tachoscope.lineage.git_commit import repository_of
from tachoscope_core.redaction import names_secret, redact, redact_arguments, redact_environment, redact_value

MAX_VALUE_BYTES = 2_000
MAX_BYTES = 32_000
_CUT = " ..."
_MAX_SCRIPT_BYTES = 4 << 20
_IMAGE_VARIABLES = ("TACHOSCOPE_IMAGE", "SLURM_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
_SCHEDULER_VARIABLES = {
    "slurm_job": "SLURM_JOB_ID",
    "slurm_partition": "SLURM_JOB_PARTITION",
    "slurm_nodes": "SLURM_JOB_NODELIST",
    "kubernetes_job": "JOB_NAME",
    "torchelastic_run": "TORCHELASTIC_RUN_ID",
}

_described: dict[str, str] = {}
_seen: dict[str, str] = {}
_parents: list[str] = []
_said: dict[str, str] = {}


def of_this_process() -> dict[str, str]:
    """Return by name what this process is made of; what cannot be read is absent.

    `code_reference` is `git:<commit> <script in the repository>`, and where there is no repository `<script> sha256:<digits>`.
    """
    _said.clear()
    _said.update(capped(_gather(os.environ)))
    return dict(_said)


def since_start() -> dict[str, str]:
    """Return what is new or changed since `of_this_process`, such as a tracker's run or a late `describe`."""
    now = capped({**_seen, **_described, **tracker_runs.active()})
    return {name: value for name, value in now.items() if _said.get(name) != value}


def describe(
    *,
    hyperparameters: Mapping[str, Any] | None = None,
    data_snapshot: str | None = None,
    image: str | None = None,
    parents: Sequence[str | os.PathLike[str]] | None = None,
) -> None:
    """Remember the job's description; see `tachoscope.describe`."""
    if hyperparameters is not None:
        with ArgumentGuard(hyperparameters, "describe(hyperparameters)"):
            _described.update(hyperparameters_of(hyperparameters))
    for name, text in (("data_snapshot", data_snapshot), ("image", image)):
        if text is not None:
            with ArgumentGuard(text, f"describe({name})"):
                _described[name] = redact(str(text))
    if parents is not None:
        with ArgumentGuard(parents, "describe(parents)"):
            _parents[:] = [redact(os.fsdecode(parent)) for parent in parents]


def saw_hyperparameters(values: Mapping[str, Any]) -> None:
    """Remember the hyper-parameters given to a framework. The job's own description takes precedence."""
    if values:
        _seen.update(hyperparameters_of(values))


def described_parents() -> list[str]:
    """Return the references of the checkpoints that the job says it began from."""
    return list(_parents)


def launch(command: Sequence[str]) -> dict[str, str]:
    """Return what the launcher says of the command that it starts."""
    return capped({"launch_command": shlex.join(redact_arguments(command))})


def hyperparameters_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return hyper-parameters as canonical JSON, and its SHA-256, which is independent of their order and of secrets."""
    text = json.dumps(_plain(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {"hyperparameters": text, "hyperparameters_hash": f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()}"}


def capped(values: Mapping[str, str]) -> dict[str, str]:
    """Return the non-empty values, each cut to `MAX_VALUE_BYTES`, up to `MAX_BYTES` in all."""
    kept, left = {}, MAX_BYTES
    for name, value in values.items():
        encoded = value.encode(errors="replace")
        if len(encoded) > MAX_VALUE_BYTES:
            value = encoded[: MAX_VALUE_BYTES - len(_CUT)].decode(errors="ignore") + _CUT
        left -= len(name.encode()) + len(value.encode(errors="replace"))
        if value and left >= 0:
            kept[name] = value
    return kept


def _gather(environ: Mapping[str, str]) -> dict[str, str]:
    variables = redact_environment(environ)
    found = {
        **_code(),
        "command": shlex.join(redact_arguments(sys.orig_argv)),
        "image": _image(environ),
        "topology": redact(_topology(environ)),
        "data_snapshot": redact(environ.get("TACHOSCOPE_DATA_SNAPSHOT", "")),
        "python_version": sys.version.split()[0],
        **_cuda_version(),
        **{name: redact(environ.get(variable, "")) for name, variable in _SCHEDULER_VARIABLES.items()},
        "environment": " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items() if not _told_elsewhere(name)),
    }
    return {**found, **_seen, **_described, **tracker_runs.active()}


def _told_elsewhere(name: str) -> bool:
    """Return whether a variable differs by rank or is a field of its own. Of SLURM's many variables those that configure the job
    are kept.
    """
    return name in {"RANK", "LOCAL_RANK", "GROUP_RANK"} or (
        name.startswith(("SLURM_", "TORCHELASTIC_"))
        and not name.startswith(("SLURM_GPUS", "SLURM_CPUS", "SLURM_MEM", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_RESTART"))
    )


def _code() -> dict[str, str]:
    script = _script()
    if script is None:
        return {}
    found = {}
    with contextlib.suppress(OSError):
        if script.stat().st_size <= _MAX_SCRIPT_BYTES:
            found["script_sha256"] = hashlib.sha256(script.read_bytes()).hexdigest()
    repository = repository_of(script)
    if repository is not None:
        reference = f"git:{repository.commit} {script.relative_to(repository.root)}"
        # Whether other files were changed is not known without git, and is not guessed; of the script its own hash tells.
        return {"code_reference": reference, "code_changes": "not looked at", **found}
    digest = f" sha256:{found['script_sha256']}" if found else ""
    return {"code_reference": f"{script.name}{digest}"}


def _script() -> Path | None:
    name = getattr(sys.modules.get("__main__"), "__file__", None) or (sys.argv[0] if sys.argv else "")
    if not name or name == "-c":
        return None
    path = Path(os.path.realpath(name))
    return path if path.is_file() else None


def _topology(environ: Mapping[str, str]) -> str:
    """Return the switches above this node from the top of the network downwards, with `/` between them; empty: not known.

    Slurm names them with the node itself last: https://slurm.schedmd.com/topology.html#user_opts.
    """
    named = environ.get("TACHOSCOPE_TOPOLOGY", "")
    kinds = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    if named or kinds[-1] != "node":
        return named
    names = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(kinds) - 1)  # the name of a node may have dots
    return "/".join(names[:-1]) if len(names) == len(kinds) else ""


def _image(environ: Mapping[str, str]) -> str:
    named = next((environ[name] for name in _IMAGE_VARIABLES if environ.get(name)), "")
    if not named:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            labels = json.loads(Path("/.singularity.d/labels.json").read_bytes()[:100_000])
            named = str(labels.get("org.label-schema.usage.singularity.deffile.from", ""))
    return redact(named)


def _cuda_version() -> dict[str, str]:
    version = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {"cuda_version": version} if isinstance(version, str) else {}


def _plain(value: Any, name: str = "", depth: int = 0) -> Any:
    """Return a value as JSON knows it, secrets redacted by name and by format."""
    if value is None or isinstance(value, bool):
        return value
    if names_secret(name) and not isinstance(value, Mapping | list | tuple | set | frozenset):
        shown = redact_value(name, str(value))
        return shown if shown != str(value) or not isinstance(value, int | float) else value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # NaN is not JSON
    if isinstance(value, Mapping) and depth < 10:
        # What lies below a secret's name is one too, such as {"password": {"value": 12345}}.
        return {str(key): _plain(one, name if names_secret(name) else str(key), depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple) and depth < 10:
        return [_plain(one, name, depth + 1) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(redact_value(name, str(one)) for one in value)
    return redact_value(name, str(value))
