"""requirements.lock: everything that `make` installs, by version and hash; what the demo installs of it; PyTorch stands apart."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helpers import REPOSITORY

LOCK = (REPOSITORY / "requirements.lock").read_text()
DEMO = (REPOSITORY / "requirements-demo.lock").read_text()
TORCH = (REPOSITORY / "requirements-torch.lock").read_text()
PARTS, DEMO_PARTS = (re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", lock, re.MULTILINE) for lock in (LOCK, DEMO))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def plain(requirement: str) -> str:
    """Return the name of a requirement, as indexes compare names."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_each_requirement_is_one_version_with_a_hash() -> None:
    bad = [part for part in PARTS if not re.fullmatch(r"\S+==\S+( ; [^\\\n]+)? (\\\n    --hash=sha256:[0-9a-f]{64} ?)+\n", part)]

    assert len(PARTS) > 100
    assert bad == []
    assert "".join(PARTS) == "".join(line for line in LOCK.splitlines(keepends=True) if not line.startswith("#"))


def test_every_direct_dependency_is_in_it() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    build = PROJECT["build-system"]["requires"]
    direct = [
        *PROJECT["project"]["dependencies"],
        *build,
        *(one for group in PROJECT["dependency-groups"].values() for one in group if isinstance(one, str)),
        *(one for some in extras for one in some),
    ]
    locked = {plain(part) for part in PARTS}

    assert {plain(one) for one in direct} - locked == {"tachoscope"}


def test_the_demo_installs_a_tenth_of_the_packages_each_as_the_whole_lock_has_it() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    needed = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["build"], *extras["analyze"], *extras["agent"]]

    assert {plain(one) for one in needed} <= {plain(part) for part in DEMO_PARTS}
    assert set(DEMO_PARTS) <= set(PARTS)
    assert len(DEMO_PARTS) < len(PARTS) / 4
    assert "".join(DEMO_PARTS) == "".join(line for line in DEMO.splitlines(keepends=True) if not line.startswith("#"))


def test_pytorch_alone_stands_apart_without_a_hash_and_no_index_is_named() -> None:
    (line,) = (line for line in TORCH.splitlines() if not line.startswith("#"))

    assert re.fullmatch(r"torch==[0-9.]+", line)
    assert not any(re.match(r"(torch|triton|cuda-.*|nvidia-(?!ml-py).*)==", part) for part in PARTS)
    assert not re.search(r"://|--(extra-)?index|--find-links", LOCK + DEMO + TORCH)


def test_what_differs_from_its_hash_is_not_installed(tmp_path: Path) -> None:
    part = next(part for part in PARTS if part.startswith("annotated-doc=="))
    (tmp_path / "lock").write_text(re.sub(r"sha256:[0-9a-f]{4}", "sha256:0000", part))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--dest", str(tmp_path / "into")]
    if subprocess.run([*pip, part.split()[0]], capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")
    done = subprocess.run([*pip, "--require-hashes", "-r", str(tmp_path / "lock")], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
