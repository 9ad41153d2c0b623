"""The pods of agents/deploy/examples: valid, and what a kubelet makes of them is what the agent expects."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from kubernetes_rules import pod_faults, pods, schema_faults
from rendering import DEPLOY, EACH_VERSION, VERSIONS, all_values
from tachoscope.process import identity
from tachoscope.process.placement import pod_uid
from tachoscope_core import yaml_text
from tachoscope_node.spool.owners import pod_of_directory

EXAMPLES = sorted((DEPLOY / "examples").glob("*.yaml"))
UID = "0f9b7a52-8b4e-4a57-9d4c-0d6b1f7a2c11"
METADATA = {
    "Pod": {},
    "PyTorchJob": {"training.kubeflow.org/job-name": "bert"},
    "JobSet": {"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/restart-attempt": "2"},
}
"""Labels that the operators put on their pods."""


def read(path: Path) -> dict[str, Any]:
    return yaml_text.load(path.read_text())


EACH = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


@EACH
@EACH_VERSION
def test_an_example_is_valid_for_each_kubernetes_version_and_loses_no_field(path: Path, version: str) -> None:
    document = read(path)

    assert len(pods(document)) == 1
    assert schema_faults(document, version) + pod_faults(document) == []


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.bar] * (place > 0), id=path.stem) for place, path in enumerate(EXAMPLES)]
)
def test_the_checks_find_a_field_that_is_misspelt_at_each_level(path: Path) -> None:
    def levels(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        own = [at] if isinstance(value, dict) and not {"labels", "limits", "requests"} & set(map(str, at)) else []
        return own + [found for key, part in inner for found in levels(part, (*at, key))]

    sound = read(path)
    for at in levels(sound):
        if at[-1:] == ("pytorchReplicaSpecs",) or at in (("metadata",),):
            continue  # a map of roles; metadata is the API server's own, and looked at below
        document = copy.deepcopy(sound)
        place = document
        for key in at:
            place = place[key]
        place["misspelt"] = 1
        assert schema_faults(document, VERSIONS[-1]), at


def environment(container: dict[str, Any], kind: str) -> dict[str, str]:
    """Return the variables that the kubelet gives to a container."""
    fields = {"metadata.namespace": "team-a", "metadata.name": "resnet-worker-0", "metadata.uid": UID}
    fields |= {f"metadata.labels['{label}']": value for label, value in METADATA[kind].items()}
    return {
        variable["name"]: variable["value"] if "value" in variable else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        for variable in container["env"]
    }


def expanded(text: str, environ: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda name: environ[name[1]], text)


@EACH
def test_the_pods_directory_is_one_that_the_agent_follows_and_knows_the_pod_by(path: Path) -> None:
    document = read(path)
    (pod,) = pods(document)
    found = set()
    for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
        (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "tachoscope-spool")
        found.add((mount["mountPath"], expanded(mount["subPathExpr"], environment(container, document["kind"]))))
    ((where, directory),) = found  # the init container marks what the job writes to

    assert pod_of_directory(directory) == (UID, ("team-a", "resnet-worker-0"))
    assert where == environment(pod["spec"]["containers"][0], document["kind"])[identity.RUN_DIR]
    (volume,) = (volume for volume in pod["spec"]["volumes"] if volume["name"] == "tachoscope-spool")
    assert volume["hostPath"]["path"] == all_values({})["spool"]


@EACH
def test_the_probe_in_the_pod_knows_job_attempt_and_pod(path: Path) -> None:
    document = read(path)
    environ = environment(pods(document)[0]["spec"]["containers"][0], document["kind"])
    who = identity.resolve(environ | {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"})

    assert who.job == document["metadata"]["name"]
    assert who.attempt == (2 if document["kind"] == "JobSet" else 0)
    assert pod_uid(environ) == UID


@EACH
def test_an_example_puts_the_probe_where_python_looks_and_cannot_change_it_in_the_job(path: Path) -> None:
    spec = pods(read(path))[0]["spec"]
    (job,) = spec["containers"]
    (mount,) = (mount for mount in job["volumeMounts"] if mount["name"] == "tachoscope-probe")

    assert mount["readOnly"] is True
    (on,) = (variable["value"] for variable in job["env"] if variable["name"] == "PYTHONPATH")
    assert on == f"{mount['mountPath']}/on"
    (init,) = spec["initContainers"]
    assert {mount["mountPath"] for mount in init["volumeMounts"]} == {"/tachoscope", "/var/run/tachoscope"}  # the image's CMD
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"]}
