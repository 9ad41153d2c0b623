"""What an API server would refuse or drop: by Kubernetes' own schemas, by those of operators, and by rules that no schema holds."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

from tachoscope_core import yaml_text

Document = dict[str, Any]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUFFIXES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_POD_AT = {
    "Pod": ((),),
    "DaemonSet": (("spec", "template"),),
    "Deployment": (("spec", "template"),),
    "CronJob": (("spec", "jobTemplate", "spec", "template"),),
    "PyTorchJob": (("spec", "pytorchReplicaSpecs", "*", "template"),),
    "JobSet": (("spec", "replicatedJobs", "*", "template", "spec", "template"),),
}


def schema_faults(document: Document, version: str) -> list[str]:
    """Return what a cluster of a Kubernetes version finds wrong, unknown fields included."""
    if document["kind"] in _OPERATORS:
        faults = _OPERATORS[document["kind"]](document)
        return faults + [fault for pod in pods(document) for fault in _core_faults(_as_pod(pod), version)]
    return _core_faults(document, version)


def _core_faults(document: Document, version: str) -> list[str]:
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{document['kind']}: {'.'.join(map(str, error.absolute_path))}: {error.message}"]
    return []


def _as_pod(template: Document) -> Document:
    metadata = {"name": "pod", **template.get("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _lost(document: Any, kept: Any, where: str = "") -> Iterator[str]:
    """Say which fields of a document do not come back from the type that is to hold it."""
    if isinstance(document, dict):
        for key, value in document.items():
            if not isinstance(kept, dict) or key not in kept:
                yield f"{where}{key}: lost"
            else:
                yield from _lost(value, kept[key], f"{where}{key}.")
    elif isinstance(document, list):
        if not isinstance(kept, list) or len(kept) != len(document):
            yield f"{where}: lost"
        else:
            for index, (value, other) in enumerate(zip(document, kept, strict=True)):
                yield from _lost(value, other, f"{where}{index}.")
    elif document != kept:
        yield f"{where.rstrip('.')}: {document!r} became {kept!r}"


def _prometheus_operator_faults(document: Document) -> list[str]:
    """By the types made from the CRDs of prometheus-operator 0.80 (package cloudcoil-models-prometheus-operator)."""
    import pydantic
    from cloudcoil.models.prometheus_operator import v1

    kind = document["kind"]
    try:
        model = getattr(v1, kind).model_validate(document)
    except pydantic.ValidationError as error:
        return [f"{kind}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return list(_lost(document, model.model_dump(mode="json", by_alias=True, exclude_unset=True)))


def _job_set_faults(document: Document) -> list[str]:
    """By the types of jobset.x-k8s.io/v1alpha2 that Kubeflow's trainer publishes (package kubeflow-trainer-api)."""
    import pydantic
    from kubeflow_trainer_api.models import JobsetV1alpha2JobSet

    try:
        model = JobsetV1alpha2JobSet.from_dict(document)
    except pydantic.ValidationError as error:
        return [f"JobSet: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    assert model is not None
    return list(_lost(document, model.to_dict()))


def _pytorch_job_faults(document: Document) -> list[str]:
    schema = yaml_text.load(Path(__file__).with_name("pytorchjob_schema.yaml").read_text())
    errors = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"PyTorchJob: {error.json_path}: {error.message}" for error in errors]


_OPERATORS = dict.fromkeys(("PodMonitor", "ServiceMonitor", "PrometheusRule"), _prometheus_operator_faults) | {
    "JobSet": _job_set_faults,
    "PyTorchJob": _pytorch_job_faults,
}


def pods(document: Document) -> list[Document]:
    """Return the pod or pod templates of a document."""
    return [pod for path in _POD_AT.get(document["kind"], ()) for pod in _at(document, path)]


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield value
    elif path[0] == "*":
        for part in value.values() if isinstance(value, dict) else value:
            yield from _at(part, path[1:])
    else:
        yield from _at(value[path[0]], path[1:])


def pod_faults(document: Document) -> list[str]:
    """Return what an API server refuses, a kubelet cannot start, or nobody should run: rules that no schema holds."""
    faults = []
    if document["kind"] in ("DaemonSet", "Deployment"):
        wanted, there = document["spec"]["selector"]["matchLabels"], document["spec"]["template"]["metadata"]["labels"]
        faults += [f"label {key} of the selector is not the pod's" for key in wanted if there.get(key) != wanted[key]]
    for pod in pods(document):
        spec = pod["spec"]
        containers = [*spec.get("initContainers", []), *spec["containers"]]
        faults += _repeated("container", [container["name"] for container in containers])
        faults += _repeated("volume", [volume["name"] for volume in spec.get("volumes", [])])
        mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        faults += [f"volume {name} is mounted but not there" for name in mounted - volumes]
        faults += [f"volume {name} is never mounted" for name in volumes - mounted]
        for container in containers:
            faults += [f"{container['name']}: {fault}" for fault in _container_faults(container, spec)]
    return faults


def _repeated(what: str, names: list[str]) -> Iterator[str]:
    for name, same in itertools.groupby(sorted(names)):
        if len(list(same)) > 1:
            yield f"two {what}s {name}"
        if not _NAME.fullmatch(name):
            yield f"{what} {name} is not a DNS label"


def _container_faults(container: Document, spec: Document) -> Iterator[str]:
    yield from _image_faults(container["image"])
    yield from _security_faults(container.get("securityContext", {}), spec.get("securityContext", {}))
    yield from _resource_faults(container.get("resources", {}))
    yield from _repeated_texts("environment variable", [variable["name"] for variable in container.get("env", [])])
    yield from _repeated_texts("mount path", [mount["mountPath"] for mount in container.get("volumeMounts", [])])
    known = {variable["name"] for variable in container.get("env", [])}
    for mount in container.get("volumeMounts", []):
        for name in set(re.findall(r"\$\((\w+)\)", mount.get("subPathExpr", ""))) - known:
            yield f"subPathExpr of {mount['name']}: $({name}) is not in the container's environment"
    ports = {port["name"]: port for port in container.get("ports", [])}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        for action in ("httpGet", "tcpSocket"):
            port = container.get(probe, {}).get(action, {}).get("port")
            if isinstance(port, str) and port not in ports:
                yield f"{probe}: no port {port}"
    for port in ports.values():
        if spec.get("hostNetwork") and port.get("hostPort") != port["containerPort"]:
            yield f"port {port['name']}: in the node's network hostPort is containerPort"


def _repeated_texts(what: str, texts: list[str]) -> Iterator[str]:
    yield from (f"two {what}s {text}" for text in sorted({text for text in texts if texts.count(text) > 1}))


def _image_faults(image: str) -> Iterator[str]:
    name, _, digest = image.partition("@")
    tag = name.rpartition(":")[2] if ":" in name.rpartition("/")[2] else ""
    if tag == "latest" or not (tag or re.fullmatch(r"sha256:[0-9a-f]{64}", digest)):
        yield f"image {image} is named by neither version nor digest"


def _security_faults(own: Document, pod: Document) -> Iterator[str]:
    added = own.get("capabilities", {}).get("add", [])
    if own.get("allowPrivilegeEscalation") is False and (own.get("privileged") or "CAP_SYS_ADMIN" in added):
        yield "allowPrivilegeEscalation: false is refused beside privileged and CAP_SYS_ADMIN"
    if pod.get("runAsNonRoot") and own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield "runAsNonRoot with user 0"


def _resource_faults(resources: Document) -> Iterator[str]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if "memory" not in limits:
        yield "no limit of memory"
    for name in limits.keys() & requests.keys():
        if quantity(requests[name]) > quantity(limits[name]):
            yield f"{name}: more is requested than the limit"


@functools.cache
def quantity(text: str | int | float) -> float:
    """Return a quantity as a number: cores, bytes."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    assert match is not None, text
    return float(match[1]) * _SUFFIXES[match[2]]


def restricted_faults(pod: Document) -> list[str]:
    """Return what the Pod Security Standard `restricted` refuses: https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    spec = pod["spec"]
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret", "name"}
    faults = [f"{key}: true" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    faults += [f"volume {volume['name']}" for volume in spec.get("volumes", []) if not volume.keys() <= allowed]
    common = spec.get("securityContext", {})
    types = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
    if common.get("seLinuxOptions", {}).get("type", "") not in types:
        faults.append("seLinuxOptions.type")
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        own = {**common, **container.get("securityContext", {})}
        rules = {
            "privileged": not own.get("privileged"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "runAsNonRoot": own.get("runAsNonRoot") is True and own.get("runAsUser") != 0,
            "seccompProfile": own.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "capabilities.drop": "ALL" in own.get("capabilities", {}).get("drop", []),
            "capabilities.add": set(own.get("capabilities", {}).get("add", [])) <= {"NET_BIND_SERVICE"},
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        }
        faults += [f"{container['name']}: {rule}" for rule, kept in rules.items() if not kept]
    return faults
