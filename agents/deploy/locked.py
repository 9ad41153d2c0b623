"""Prints those parts of a lock with hashes that requirements need, for `pip install --no-deps --require-hashes`.

    python locked.py requirements.lock msgspec
    python locked.py requirements.lock "/wheels/tachoscope-0.1.0-cp311-abi3-linux_x86_64.whl[agent]"

pip takes hashes for all that it installs or for none, so it cannot be given the lock as a constraint. What is asked for by its path
is left out: it has no hash in the lock.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def locked(lock: str, *requirements: str) -> str:
    """Return the parts of the lock. SystemExit: the lock lacks one, or does not allow what is needed."""
    parts = {_plain(part.partition("==")[0]): part for part in re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", lock, re.MULTILINE)}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
        versions.writelines(part.partition("\n")[0].rstrip("\\ ") + "\n" for part in parts.values())
        versions.flush()
        options = [
            "--dry-run",
            "--quiet",
            "--ignore-installed",
            "--only-binary",
            ":all:",
            "--constraint",
            versions.name,
            "--report",
            "-",
        ]
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, *requirements]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip could not resolve {', '.join(requirements)} within the lock")
    names = sorted(_plain(one["metadata"]["name"]) for one in json.loads(done.stdout)["install"] if not one["is_direct"])
    if missing := [name for name in names if name not in parts]:
        raise SystemExit(f"not in the lock: {', '.join(missing)}; make lock")
    return "".join(parts[name] for name in names)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


if __name__ == "__main__":
    sys.stdout.write(locked(Path(sys.argv[1]).read_text(), *sys.argv[2:]))
