"""The rights of the rendered pod are those of the table, no more and no fewer, and each is off until its part is switched on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubernetes_rules import restricted_faults
from rendering import CHART, PROFILES, all_values, merged, one, profile, render
from tachoscope_core import yaml_text

TABLE: list[dict[str, Any]] = yaml_text.load((CHART / "privileges.yaml").read_text())["parts"]
NOTHING = profile(CHART / "ci" / "no-privilege-values.yaml")
ALWAYS = {"config", "tmp", "web-config"}
"""Volumes that hold nothing of the node."""

Rights = set[tuple[str, ...]]


def value_at(values: Any, path: str) -> Any:
    for key in [] if path.startswith("/") else path.split("."):
        values = values[key]
    return path if path.startswith("/") else values


def is_on(part: dict[str, Any], values: dict[str, Any]) -> bool:
    if "switch" not in part:
        return True
    value, wanted = value_at(values, part["switch"]), part.get("is", [True])
    return value in wanted or ("set" in wanted and value != "")


def allowed(part: dict[str, Any], values: dict[str, Any]) -> Rights:
    """Return the rights that the table gives to a part."""
    rights: Rights = {(key,) for key in ("root", "privileged", "host_pid", "host_network") if part.get(key)}
    rights |= {("capability", name) for name in part.get("capabilities", [])}
    for mounted in part.get("host_paths", []):
        rights.add(("path", str(value_at(values, mounted["path"])), "write" if mounted.get("write") else "read"))
    return rights


def taken(documents: list[dict[str, Any]]) -> Rights:
    """Return the rights that the rendered pod has beyond one of the standard `restricted`."""
    spec = one(documents, "DaemonSet")["spec"]["template"]["spec"]
    rights: Rights = {("host_pid",)} if spec.get("hostPID") else set()
    rights |= {("host_network",)} if spec.get("hostNetwork") else set()
    rights |= {("ipc",)} if spec.get("hostIPC") else set()
    host_paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        own = {**spec["securityContext"], **container["securityContext"]}
        rights |= {("root",)} if own["runAsUser"] == 0 or not own.get("runAsNonRoot", own["runAsUser"]) else set()
        rights |= {("privileged",)} if own.get("privileged") else set()
        rights |= {("capability", name) for name in own.get("capabilities", {}).get("add", [])}
        for mount in container["volumeMounts"]:
            if mount["name"] in host_paths:
                rights.add(("path", host_paths[mount["name"]], "read" if mount.get("readOnly") else "write"))
    return rights


def confined(rights: Rights) -> Rights:
    """A privileged container has all capabilities, so that none is named."""
    return {right for right in rights if right[0] != "capability"} if ("privileged",) in rights else rights


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_profile_has_the_rights_of_its_parts_no_more_and_no_fewer(path: Path) -> None:
    values = all_values(profile(path))
    wanted = set().union(*(allowed(part, values) for part in TABLE if is_on(part, values)))

    assert taken(render(profile(path))) == confined(wanted)


def switched_on(part: dict[str, Any]) -> dict[str, Any]:
    """Return values in which this part is on and no other that needs a right."""
    choice = part.get("is", [True])[0]
    values: Any = "/mnt/tachoscope" if choice == "set" else choice
    for key in reversed(part["switch"].split(".")):
        values = {key: values}
    if part["switch"] == "collectors.dcgm.enabled":
        values["collectors"]["dcgm"]["url"] = "http://dcgm:9400/metrics"
    if part["switch"] == "collectors.jobs.otherUsers":
        values["collectors"]["jobs"]["enabled"] = True
    return merged(NOTHING, values)


@pytest.mark.parametrize("part", [part for part in TABLE if "switch" in part], ids=lambda part: part["name"])
def test_switching_a_part_on_adds_its_rights_alone(part: dict[str, Any]) -> None:
    values = all_values(switched_on(part))
    others = set().union(*(allowed(other, values) for other in TABLE if other is not part and is_on(other, values)))

    assert taken(render(switched_on(part))) - others == allowed(part, values) - others
    if part["switch"] != "collectors.jobs.otherUsers":  # which needs jobs
        assert others == set()


def test_without_any_part_switched_on_the_pod_is_one_of_the_standard_restricted() -> None:
    pod = one(render(NOTHING), "DaemonSet")["spec"]["template"]

    assert restricted_faults(pod) == []
    assert taken(render(NOTHING)) == set()


def test_the_check_for_the_standard_finds_what_the_default_pod_has_more() -> None:
    faults = restricted_faults(one(render(), "DaemonSet")["spec"]["template"])

    assert {"volume spool", "volume state", "volume pod-resources", "agent: runAsNonRoot"} <= set(faults)
    everything = restricted_faults(one(render(profile(CHART / "ci" / "everything-values.yaml")), "DaemonSet")["spec"]["template"])
    assert {"hostPID: true", "hostNetwork: true", "agent: privileged", "agent: hostPort"} <= set(everything)


def test_the_default_sees_neither_processes_nor_network_nor_kernel_log_of_the_node() -> None:
    rights = taken(render())

    assert not rights & {("privileged",), ("host_pid",), ("host_network",), ("path", "/dev/kmsg", "read")}
    assert not [right for right in rights if right[0] == "capability"]
    assert ("path", "/var/lib/kubelet/pod-resources", "read") in rights


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_no_profile_has_a_right_at_the_api_server_or_a_writable_root(path: Path) -> None:
    documents = render(profile(path))
    spec = one(documents, "DaemonSet")["spec"]["template"]["spec"]

    assert not {document["kind"] for document in documents} & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
    assert spec["automountServiceAccountToken"] is False
    assert one(documents, "ServiceAccount")["automountServiceAccountToken"] is False
    assert not any("serviceAccountToken" in str(volume) for volume in spec["volumes"])
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        assert container["securityContext"].get("privileged") or container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_no_profile_claims_a_gpu_or_makes_a_cuda_context_possible(path: Path) -> None:
    container = one(render(profile(path)), "DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}

    assert not any("nvidia.com" in name for name in [*container["resources"]["limits"], *container["resources"]["requests"]])
    assert env.get("NVIDIA_DRIVER_CAPABILITIES", "utility") == "utility"  # without `compute` libcuda is not there
