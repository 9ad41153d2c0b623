"""Runs a container of a rendered pod on this machine as a runtime would: with its user, capabilities, mounts and read-only root.

Not emulated: seccomp, SELinux, the device cgroup, and that other containers' processes and network are hidden.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CAN_CONTAIN = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("unshare", "setpriv")),
    reason="needs root, unshare and setpriv to take rights away",
)
_WORLD = """
set -e
while [ "$1" != -- ]; do mount --bind "$1" "$1"; [ "$2" = rw ] || mount -o remount,bind,ro "$1"; shift 2; done; shift
mount -o remount,bind,ro /
exec "$@"
"""


def command(spec: dict[str, Any], container: dict[str, Any], words: list[str]) -> list[str]:
    """Return a command that runs `words` with the rights of a container. Volumes of the node are mounted where they are."""
    context = {**spec["securityContext"], **container["securityContext"]}
    added = ",".join(f"+{name.lower()}" for name in context["capabilities"].get("add", []))
    rights = [f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", "--clear-groups", "--inh-caps=-all"]
    rights += [f"--bounding-set=-all{',' + added if added else ''}", "--no-new-privs"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    writable = {volume["name"] for volume in spec["volumes"] if volume.keys() & {"hostPath", "emptyDir"}}
    mounts = []
    for mount in container["volumeMounts"]:
        if mount["name"] in writable and Path(mount["mountPath"]).is_dir() and mount["mountPath"] != "/tmp":
            mounts += [mount["mountPath"], "ro" if mount.get("readOnly") else "rw"]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _WORLD, "sh", *mounts, "--", "setpriv", *rights, *words]


def run(spec: dict[str, Any], container: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    """Run `words` with a container's rights to the end."""
    return subprocess.run(command(spec, container, list(words)), capture_output=True, text=True, timeout=300, check=False)


def can_run_python(spec: dict[str, Any], container: dict[str, Any]) -> bool:
    """Return whether the container's user may run this Python, which can lie in a folder that is closed to others."""
    return run(spec, container, sys.executable, "-c", "import tachoscope_cli").returncode == 0
