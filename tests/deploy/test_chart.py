"""The chart, rendered by helm for each profile of its ci folder: what a cluster would take of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubernetes_rules import pod_faults, schema_faults
from rendering import CHART, EACH_VERSION, PROFILES, all_values, one, profile, render, run_helm, template
from tachoscope_core import yaml_text
from tachoscope_node.config.load import load

EACH_PROFILE = pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
FREE = {"nodeSelector", "affinity", "updateStrategy", "podAnnotations", "podLabels", "serviceAccount.annotations"}
FREE |= {f"{part}.{key}" for part in ("dashboards", "prometheusRules") for key in ("labels", "annotations")}
_OPEN = ("labels", "tlsConfig", "basicAuth", "authorization")
FREE |= {f"{kind}.{key}" for kind in ("podMonitor", "serviceMonitor") for key in _OPEN}
"""Maps of values.yaml that take any key."""


@EACH_PROFILE
def test_helm_lints_the_chart_strictly_with_each_profile(path: Path) -> None:
    done = run_helm("lint", "--strict", str(CHART), "--values", str(path))

    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@EACH_PROFILE
@EACH_VERSION
def test_what_is_rendered_is_valid_for_each_kubernetes_version_and_loses_no_field(path: Path, version: str) -> None:
    documents = render(profile(path), version)

    assert {document["kind"] for document in documents} >= {"DaemonSet", "ConfigMap", "ServiceAccount"}
    assert [fault for document in documents for fault in schema_faults(document, version) + pod_faults(document)] == []
    assert all(document["metadata"]["namespace"] == "tachoscope" for document in documents)


def spec_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return one(documents, "DaemonSet")["spec"]["template"]["spec"]


def misspell_a_field(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["hostPid"] = True


def give_a_text_for_a_number(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["terminationGracePeriodSeconds"] = "soon"


def misspell_a_field_of_the_monitor(documents: list[dict[str, Any]]) -> None:
    one(documents, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["intervall"] = "15s"


def give_the_monitor_a_bad_duration(documents: list[dict[str, Any]]) -> None:
    one(documents, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["interval"] = "15 seconds"


def forget_a_volume(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["volumes"].pop()


def forget_a_mount(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["containers"][0]["volumeMounts"].pop()


def mount_twice_in_one_place(documents: list[dict[str, Any]]) -> None:
    mounts = spec_of(documents)["containers"][0]["volumeMounts"]
    mounts.append({**mounts[0], "name": mounts[1]["name"]})


def ask_for_escalation_of_a_privileged_container(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["containers"][0]["securityContext"] |= {"privileged": True, "allowPrivilegeEscalation": False}


def request_more_than_the_limit(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["containers"][0]["resources"]["requests"]["memory"] = "1Gi"


def name_no_version(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["containers"][0]["image"] = "registry:5000/agent"


def name_the_latest(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["containers"][0]["image"] = "agent:latest"


def select_other_pods(documents: list[dict[str, Any]]) -> None:
    one(documents, "DaemonSet")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] = "other"


def probe_a_port_that_is_not_there(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["containers"][0]["livenessProbe"]["httpGet"]["port"] = "web"


def set_a_variable_twice(documents: list[dict[str, Any]]) -> None:
    spec_of(documents)["containers"][0]["env"].append({"name": "NODE_NAME", "value": "other"})


DAMAGES: list[Callable[[list[dict[str, Any]]], None]] = [
    misspell_a_field,
    give_a_text_for_a_number,
    misspell_a_field_of_the_monitor,
    give_the_monitor_a_bad_duration,
    forget_a_volume,
    forget_a_mount,
    mount_twice_in_one_place,
    ask_for_escalation_of_a_privileged_container,
    request_more_than_the_limit,
    name_no_version,
    name_the_latest,
    select_other_pods,
    probe_a_port_that_is_not_there,
    set_a_variable_twice,
]


@pytest.fixture(scope="module")
def sound() -> list[dict[str, Any]]:
    return render({"podMonitor": {"enabled": True}})


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_checks_find_what_is_damaged(damage: Callable[[list[dict[str, Any]]], None], sound: list[dict[str, Any]]) -> None:
    documents = copy.deepcopy(sound)
    damage(documents)

    assert len([fault for document in documents for fault in schema_faults(document, "1.34") + pod_faults(document)]) == 1


@EACH_PROFILE
def test_the_agent_takes_the_configuration_that_is_rendered(path: Path, tmp_path: Path) -> None:
    values = profile(path)
    rendered = yaml_text.load(one(render(values), "ConfigMap")["data"]["agent.yaml"])
    (tmp_path / "web.yaml").touch()
    here = {"web_config": str(tmp_path / "web.yaml")} if "web_config" in rendered else {}
    if "sys" in rendered:  # the host's, which is mounted there
        assert rendered["sys"] == "/host/sys"
        here["sys"] = "/sys"
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump({**rendered, "node": "node-1", **here}))

    config = load(tmp_path / "agent.yaml")

    set_ = all_values(values)
    collectors = set_["collectors"]
    assert (config.spool, config.state, config.port, config.address) == ("/run/tachoscope", "/var/lib/tachoscope", 9465, "0.0.0.0")
    assert config.gpu.enabled == collectors["gpu"]["enabled"]
    assert config.gpu.expected == collectors["gpu"]["expected"]
    assert config.gpu.kernel_log == ("/dev/kmsg" if collectors["kernelLog"]["enabled"] else "")
    assert config.gpu.dcgm_url == collectors["dcgm"]["url"]
    assert config.gpu.dcgm_names == collectors["dcgm"]["names"]
    assert bool(config.gpu.pod_resources) == collectors["pods"]["enabled"]
    assert config.gpu.interval_seconds == set_["config"].get("gpu", {}).get("interval_seconds", 1.0)


def test_without_node_selector_every_node_gets_a_pod() -> None:
    assert "nodeSelector" in spec_of(render())
    assert "nodeSelector" not in spec_of(render({"nodeSelector": None}))
    assert "nodeSelector" in spec_of(render({"nodeSelector": {}}))  # helm merges maps
    (comment,) = (line for line in (CHART / "values.yaml").read_text().splitlines() if "for every node" in line)
    assert comment.endswith("null for every node")


def test_off_stays_a_word_on_its_way_through_two_yaml_files() -> None:
    config = one(render({"collectors": {"gpu": {"enabled": "off"}}}), "ConfigMap")["data"]["agent.yaml"]

    assert yaml_text.load(config)["gpu"]["enabled"] == "off"


def test_other_keys_of_nccl_and_profiles_stand_beside_those_of_the_chart() -> None:
    parts = {"nccl": {"inspector": "/run/nccl"}, "profiles": {"sockets": "/run/profiles"}}
    documents = render({"collectors": parts, "config": {"nccl": {"hung_polls": 4}, "profiles": {"automatic": False}}})
    config = yaml_text.load(one(documents, "ConfigMap")["data"]["agent.yaml"])

    assert config["nccl"] == {"inspector": ["/run/nccl"], "hung_polls": 4}
    assert config["profiles"] == {"enabled": True, "sockets": ["/run/profiles"], "automatic": False}
    assert yaml_text.load(one(render(), "ConfigMap")["data"]["agent.yaml"])["profiles"] == {"enabled": False}


def test_where_records_go_is_the_first_place_that_is_set() -> None:
    def store(**values: Any) -> tuple[str, str]:
        documents = render({"store": values})
        volume = next((volume for volume in spec_of(documents)["volumes"] if volume["name"] == "store"), {})
        config = yaml_text.load(one(documents, "ConfigMap")["data"]["agent.yaml"])
        return config["store"], "".join(volume.keys() - {"name"})

    assert store() == ("/var/lib/tachoscope/store", "")
    assert store(hostPath="/mnt/x") == ("/store", "hostPath")
    assert store(hostPath="/mnt/x", existingClaim="c") == ("/store", "persistentVolumeClaim")
    assert store(url="s3://b/x") == ("s3://b/x", "")


@pytest.mark.parametrize("jobs", [True, False])
def test_samples_are_not_written_to_a_store_on_the_nodes_own_disk_unless_told_so(jobs: bool) -> None:
    def sample_seconds(**values: Any) -> Any:
        config = one(render({"collectors": {"jobs": {"enabled": jobs}}, **values}), "ConfigMap")["data"]["agent.yaml"]
        return yaml_text.load(config).get("sample_seconds")

    assert sample_seconds() == 0
    assert sample_seconds(config={"sample_seconds": 60}) == 60
    for store in ({"url": "s3://bucket/x"}, {"hostPath": "/mnt/x"}, {"existingClaim": "store"}):
        assert sample_seconds(store=store) is None


def test_a_changed_configuration_replaces_the_pods_and_nothing_else_does() -> None:
    def checksum(values: dict[str, Any]) -> str:
        return one(render(values), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert checksum({}) == checksum({"podMonitor": {"enabled": True}})
    assert checksum({}) != checksum({"config": {"retention_seconds": 60}})


def test_the_network_policy_lets_out_to_the_named_services_only() -> None:
    def ports(values: dict[str, Any]) -> set[int]:
        policy = one(render(values), "NetworkPolicy")["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        return {port["port"] for rule in policy["egress"] for port in rule["ports"]}

    lookup = {53, 5353}
    assert ports({}) == set()
    assert ports({"store": {"url": "s3://bucket/x"}}) == lookup | {443}
    assert ports({"store": {"url": "s3://bucket/x", "s3": {"endpoint": "http://minio.storage:9000/"}}}) == lookup | {9000}
    assert ports({"config": {"otlp": {"endpoint": "http://collector:4318"}}}) == lookup | {4318}
    assert ports({"collectors": {"dcgm": {"enabled": True, "url": "http://dcgm/metrics"}}}) == lookup | {80}
    server = {"name": "chat", "url": "http://10.0.0.1:8000/metrics", "node": "gpu-1"}
    assert ports({"config": {"servers": [server]}}) == lookup | {8000}


def test_a_server_that_every_node_would_read_and_count_is_refused() -> None:
    def read_by_all(url: str) -> Any:
        return template(values={"config": {"servers": [{"name": "chat", "url": url}]}})

    assert "give it `node`" in read_by_all("http://chat.prod.svc:8000/metrics").stderr
    assert "give it `node`" in read_by_all("http://localhost.example.com/metrics").stderr
    for own in ("http://127.0.0.1:8000/metrics", "http://localhost:8000/metrics", "https://[::1]:8000/metrics"):
        assert read_by_all(own).returncode == 0


def test_the_probes_follow_what_the_web_configuration_asks_for() -> None:
    def probe(**web: Any) -> dict[str, Any]:
        found = spec_of(render({"webConfig": web}))["containers"][0]["livenessProbe"]
        return found.get("httpGet") or found["tcpSocket"]

    assert probe()["scheme"] == "HTTP"
    assert probe(existingSecret="web", authentication=False)["scheme"] == "HTTPS"
    assert probe(existingSecret="web", authentication=False, tls=False)["scheme"] == "HTTP"
    assert probe(existingSecret="web") == {"port": "metrics"}  # the kubelet cannot log in


def notes(values: dict[str, Any], tmp_path: Path) -> str:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    words = ("tachoscope-agent", str(CHART), "--values", str(tmp_path / "values.yaml"), "--dry-run=client")
    done = run_helm("install", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("NOTES:")[1]


def test_the_notes_say_what_the_agent_may_who_may_read_it_and_where_records_go(tmp_path: Path) -> None:
    default = notes({}, tmp_path)
    assert "Rights: user 0.\n" in default
    assert "the NetworkPolicy lets in" in default
    assert "a directory of each node" in default
    assert "Samples of the metrics are not written there" in default
    assert "not written there" not in notes({"config": {"sample_seconds": 60}}, tmp_path)
    assert "forgotten" not in default
    everything = notes(profile(CHART / "ci" / "everything-values.yaml"), tmp_path)
    assert "PRIVILEGED, the node's processes, the node's network, SYS_ADMIN, DAC_READ_SEARCH" in everything
    assert "can read them" in everything
    nothing = notes(profile(CHART / "ci" / "no-privilege-values.yaml"), tmp_path)
    assert "Rights: user 65532.\n" in nothing
    assert "gone with the pod: set store.url" in nothing
    assert "missing GPUs are forgotten: set collectors.gpu.expected" in nothing
    assert "without TLS" not in notes({"webConfig": {"existingSecret": "web"}}, tmp_path)


def maps(values: Any, path: str = "") -> list[str]:
    """Return the dotted paths of all maps of fixed keys."""
    if not isinstance(values, dict) or path in FREE:
        return []
    inner = [found for key, value in values.items() for found in maps(value, f"{path}.{key}".strip("."))]
    return [path, *inner] if values else inner


def test_a_misspelt_key_is_refused_wherever_it_is() -> None:
    defaults = all_values({})
    open_ = {"resources.requests", "resources.limits", "watch.resources.requests", "watch.resources.limits"}
    open_ |= {"updateStrategy.rollingUpdate", "seLinuxOptions"}
    open_ |= {"storeMaintenance.resources.requests", "storeMaintenance.resources.limits"}
    for path in set(maps(defaults)) - open_:
        done = template("--set", f"{path}.misspelt=1" if path else "misspelt=1")
        assert done.returncode != 0, path
        assert "misspelt" in done.stderr, path


@pytest.mark.parametrize(
    "values",
    [
        "image.tag=latest",
        "gpuAccess=claim",
        "collectors.dcgm.enabled=true",
        "collectors.gpu.enabled=maybe",
        "collectors.gpu.interval_seconds=1",
        "store.url=gs://bucket",
        "spool=run/tachoscope",
        "port=80",
        "resources.limits.memory=null",
        "networkPolicy.from=null",
        "podMonitor.interval=often",
        "serviceMonitor.interval=often",
        "terminationGracePeriodSeconds=5",
    ],
)
def test_values_that_cannot_work_are_refused(values: str) -> None:
    done = template("--set", values)

    assert done.returncode != 0
    assert "schema" in done.stderr


def test_the_readme_names_every_key_of_the_values() -> None:
    readme = (CHART / "README.md").read_text()

    assert [key for key in all_values({}) if f"`{key}" not in readme] == []
