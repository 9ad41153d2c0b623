"""What the agent's metrics are about, in OpenTelemetry's words: the attributes of its resource."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from tachoscope_core.errors import TachoscopeError

_INSTANCES = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")
"""The namespace that the semantic conventions give for a service.instance.id made of a name."""


def version() -> str:
    """Return tachoscope's version; asked of the installation, since the probe's package knows of torch."""
    try:
        return importlib.metadata.version("tachoscope")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "0"


def missing() -> TachoscopeError:
    """Return the error for a machine without OpenTelemetry."""
    return TachoscopeError("the push of metrics by OTLP needs OpenTelemetry's SDK", fix="pip install 'tachoscope[otlp]'")


def resource_attributes(environ: Mapping[str, str], hostname: str, *, machine_id: Path = Path("/etc/machine-id")) -> dict[str, str]:
    """Return the resource's attributes by the semantic conventions.

    In Kubernetes the container's `env` gives, by the Downward API, NODE_NAME (`spec.nodeName`), POD_NAME (`metadata.name`),
    POD_NAMESPACE (`metadata.namespace`) and POD_UID (`metadata.uid`), and as a plain value CLUSTER_NAME. What
    OTEL_RESOURCE_ATTRIBUTES says (`key=value,key=value`, values percent-encoded) wins over all else.

    Args:
        environ: environment variables. hostname: this machine's name.
        machine_id: file with the machine's id; in a container it must be the host's, or not be there.

    Raises:
        TachoscopeError: if OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.semconv._incubating.attributes import host_attributes as host
        from opentelemetry.semconv._incubating.attributes import k8s_attributes as k8s
        from opentelemetry.semconv._incubating.attributes import os_attributes as os
        from opentelemetry.semconv._incubating.attributes import service_attributes as service
    except ImportError:
        raise missing() from None
    node = environ.get("NODE_NAME", "")
    machine = _machine_id(machine_id)
    attributes = {
        service.SERVICE_NAME: "tachoscope-agent",
        service.SERVICE_VERSION: version(),
        # The same after a restart, so that series go on; not of the machine's id alone, which in a container is the image's.
        service.SERVICE_INSTANCE_ID: str(uuid.uuid5(_INSTANCES, f"{environ.get('CLUSTER_NAME', '')}/{node or hostname}/{machine}")),
        host.HOST_NAME: hostname,
        host.HOST_ID: machine,
        os.OS_TYPE: platform.system().lower(),
        k8s.K8S_CLUSTER_NAME: environ.get("CLUSTER_NAME", ""),
        k8s.K8S_NODE_NAME: node,
        k8s.K8S_NAMESPACE_NAME: environ.get("POD_NAMESPACE", ""),
        k8s.K8S_POD_NAME: environ.get("POD_NAME", ""),
        k8s.K8S_POD_UID: environ.get("POD_UID", ""),
    }
    attributes |= _listed(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    return {key: value for key, value in attributes.items() if value}


def _machine_id(path: Path) -> str:
    """Return the machine's id; nothing if the file is not there or holds `uninitialized` (machine-id(5))."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return text if re.fullmatch(r"[0-9a-f]{32}", text) else ""


def _listed(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(","))
    return {key.strip(): unquote(value.strip()) for key, equals, value in pairs if equals and key.strip()}
