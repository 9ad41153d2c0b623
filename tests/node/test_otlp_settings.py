"""The OTLP push's settings and what its metrics are about."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
import pytest

from tachoscope_service.metrics.otlp.push import OtlpSettings, faults, resource_attributes
from trying import each


def test_every_fault_of_the_settings_is_named_without_secrets(tmp_path: Path) -> None:
    bad = OtlpSettings(
        "http://me:hunter2@c:4318",
        interval_seconds=5,
        timeout_seconds=5,
        headers={"Authorization": "hunter2\n", "a b": "x"},
        ca_file=str(tmp_path / "ca.pem"),
        key_file=__file__,
    )
    found = faults(bad)
    for key in ("endpoint", "timeout_seconds", "headers.Authorization", "headers: 'a b'", "ca_file", "key_file"):
        assert [fault for fault in found if fault.startswith(key)], key
    assert "hunter2" not in "".join(found) + repr(bad)


@each("endpoint", ["", "collector:4318", "ftp://c", "http://", "http://c:99999", "http://[::1", "http://c/a b"])
def test_an_endpoint_that_is_no_http_url_is_a_fault(endpoint: str) -> None:
    assert [fault for fault in faults(OtlpSettings(endpoint)) if fault.startswith("endpoint: ")]


@each("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_an_interval_or_timeout_without_end_or_beginning_is_a_fault(seconds: float) -> None:
    assert "interval_seconds" in faults(OtlpSettings("http://c", interval_seconds=seconds))[0]
    assert "timeout_seconds" in faults(OtlpSettings("http://c", timeout_seconds=seconds))[0]


def test_the_defaults_have_no_fault_and_unknown_keys_are_refused() -> None:
    assert faults(OtlpSettings("http://c:4318")) == []
    with pytest.raises(msgspec.ValidationError, match="intervall"):
        msgspec.convert({"endpoint": "http://c", "intervall": 3}, OtlpSettings)


def test_the_resource_follows_the_semantic_conventions(tmp_path: Path) -> None:
    machine = tmp_path / "machine-id"
    machine.write_text("0123456789abcdef0123456789abcdef\n")
    pod = {"NODE_NAME": "n7", "POD_NAME": "agent-x", "POD_NAMESPACE": "ops", "POD_UID": "u-1", "CLUSTER_NAME": "east"}
    listed = {"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=prod%2C1, k8s.cluster.name=west,broken"}
    found = resource_attributes(pod | listed, "n7.example", machine_id=machine)
    instance, version = uuid.UUID(found.pop("service.instance.id")), found.pop("service.version")
    assert version
    assert found == {
        "service.name": "tachoscope-agent",
        "host.name": "n7.example",
        "host.id": "0123456789abcdef0123456789abcdef",
        "os.type": "linux",
        "k8s.cluster.name": "west",
        "k8s.node.name": "n7",
        "k8s.namespace.name": "ops",
        "k8s.pod.name": "agent-x",
        "k8s.pod.uid": "u-1",
        "deployment.environment.name": "prod,1",
    }
    again = resource_attributes(pod | listed | {"POD_UID": "u-2"}, "n7.example", machine_id=machine)
    assert again["service.instance.id"] == str(instance)
    other = resource_attributes(pod | listed | {"NODE_NAME": "n8"}, "n8.example", machine_id=machine)
    assert other["service.instance.id"] != str(instance)


def test_what_is_not_known_is_no_attribute_of_the_resource(tmp_path: Path) -> None:
    found = resource_attributes({}, "laptop", machine_id=tmp_path / "none")
    assert set(found) == {"service.name", "service.version", "service.instance.id", "host.name", "os.type"}
