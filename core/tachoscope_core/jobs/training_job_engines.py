"""What a specification says of one engine alone: its section, and the keys that this engine cannot take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tachoscope_core.jobs.training_job import EngineName, KubernetesOptions, RayOptions, TrainingJob
from tachoscope_core.located_yaml import Section, Value

ENGINE_SECTIONS = ("slurm", "kubernetes", "ray")
ELSEWHERE: frozenset[EngineName] = frozenset({"kubernetes", "ray"})
"""Engines whose nodes do not have the folders of the machine that submits."""
_KUBERNETES_KEYS = (
    *("namespace", "image", "python", "queue", "priority_class", "service_account", "gpu_resource", "node_selector"),
    *("volumes", "secret_volumes"),
)
_RAY_KEYS = ("address", "token_file", "python")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NOT_LIMITED = "leave it out on this machine, where nothing limits a job"
_REFUSED: Mapping[EngineName, Mapping[str, str]] = {
    "local": dict.fromkeys(("gpus_per_node", "cpus_per_node", "memory_per_node", "time_limit"), _NOT_LIMITED),
    "ray": {"time_limit": "leave it out: Ray ends no job after a time"},
}
"""Keys that an engine cannot take, and what to write instead."""


def check_engine(section: Section, job: TrainingJob) -> None:
    """Refuse what an engine would not do.

    Raises:
        TachoscopeError: with file, line and key.
    """
    for key, fix in _REFUSED.get(job.engine, {}).items():
        if (value := section.get(key)) is not None:
            raise value.error(f"is not for engine: {job.engine}", fix)
    nodes = section.get("nodes")
    if nodes is None or job.nodes == 1:
        return
    if job.engine == "local":
        raise nodes.error(f"is {nodes.word()} for this machine", "write engine: slurm, or leave it out")
    if job.engine == "ray":
        raise nodes.error(f"is {nodes.word()} for engine: ray", "leave it out: the command is one process, which uses Ray itself")


def slurm_options(value: Value | None) -> tuple[str, ...]:
    """Return further options of sbatch. Raises TachoscopeError where tachoscope sets one, or it is none."""
    found = []
    for name, item in (value.section().values if value else {}).items():
        if not re.fullmatch(r"[a-z][a-z-]*", name):
            raise item.error("is not a long option of sbatch", "write `partition: train` for --partition=train")
        if name in {"wrap", "job-name", "comment", "output", "requeue", "nodes", "chdir", "parsable", "test-only"}:
            raise item.error("is an option that tachoscope sets", "leave it out")
        found.append(f"--{name}={item.word()}")
    return tuple(found)


def kubernetes_options(section: Section, engine: EngineName) -> KubernetesOptions | msgspec.UnsetType:
    """Return how a JobSet is made; unset for another engine, whose specification may have the section too.

    Raises:
        TachoscopeError: with file, line and key.
    """
    if engine != "kubernetes":
        return msgspec.UNSET
    own = section.required("kubernetes", "write `kubernetes: {namespace: ml, image: registry/training:1}`").section(
        _KUBERNETES_KEYS
    )
    return KubernetesOptions(
        namespace=_dns(own.required("namespace", "write `namespace: ml`")),
        image=own.required("image", "write `image: registry/training:1`; it has tachoscope installed").text(),
        python=_text(own, "python", "python3"),
        queue=_dns(own.get("queue")),
        priority_class=_dns(own.get("priority_class")),
        service_account=_dns(own.get("service_account")),
        gpu_resource=_text(own, "gpu_resource", "nvidia.com/gpu"),
        node_selector=_labels(own.get("node_selector")),
        volumes=_mounts(own.get("volumes")),
        secret_volumes=_mounts(own.get("secret_volumes")),
    )


def ray_options(section: Section, engine: EngineName) -> RayOptions | msgspec.UnsetType:
    """Return where a Ray cluster takes jobs; unset for another engine, whose specification may have the section too.

    Raises:
        TachoscopeError: with file, line and key.
    """
    if engine != "ray":
        return msgspec.UNSET
    own = section.required("ray", 'write `ray: {address: "http://head:8265"}`').section(_RAY_KEYS)
    address = own.required("address", 'write `address: "http://head:8265"`')
    token = own.get("token_file")
    if token is not None and not Path(token.text()).is_absolute():
        raise token.error("is not an absolute path", "name a file on the machine of the supervisor")
    return RayOptions(
        address=_url(address), token_file=token.text() if token is not None else "", python=_text(own, "python", "python3")
    )


def _url(value: Value) -> str:
    try:
        parts = urlsplit(value.text())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise value.error("is not the address of a Ray dashboard", 'write "http://head:8265"')
    if parts.username is not None or parts.password is not None:
        raise value.error("contains a user or password", "name a file with the token as `token_file`")
    return value.text().rstrip("/")


def _text(section: Section, key: str, default: str) -> str:
    value = section.get(key)
    return value.text() if value else default


def _dns(value: Value | None) -> str:
    if value is not None and not _DNS_NAME.fullmatch(value.text()):
        raise value.error("is not a name of an object of Kubernetes", "use lower-case letters, digits, '-' and '.'")
    return value.text() if value is not None else ""


def _labels(value: Value | None) -> dict[str, str]:
    found = {}
    for name, item in (value.section().values if value else {}).items():
        if not _LABEL.fullmatch(name) or not _LABEL_VALUE.fullmatch(item.word()):
            raise item.error("is not a label of Kubernetes", "write `cloud.google.com/gke-accelerator: nvidia-h100`")
        found[name] = item.word()
    return found


def _mounts(value: Value | None) -> dict[str, str]:
    found = {}
    for path, item in (value.section().values if value else {}).items():
        if not path.startswith("/") or ":" in path:
            raise item.error("has a key that is not an absolute path", "write `/data: name`")
        found[path] = _dns(item)
    return found
