"""Virtual environments for libraries whose requirements conflict with the pinned ones: a layer over the environment of the tests.

What the library needs in another version lies in the layer and comes first; all else, torch and tachoscope too, is the tests' own.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from helpers import REPOSITORY


def python_with(*requirements: str) -> Path:
    """Return the Python of an environment that has the requirements; made once, then used again until they change."""
    base = sysconfig.get_path("purelib")
    key = hashlib.sha256("\n".join([sys.version, base, *requirements]).encode()).hexdigest()[:8]
    folder = REPOSITORY / "build" / "integrations" / f"{requirements[0].partition('=')[0]}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run side by side
        if not (folder / ".ready").exists():
            _make(folder, python, base, requirements)
            (folder / ".ready").touch()
    return python


def _make(folder: Path, python: Path, base: str, requirements: tuple[str, ...]) -> None:
    venv.create(folder, with_pip=False)
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
    )
    # pip sees what the lower layer has, and installs only what it lacks or has in another version.
    (Path(own.stdout.strip()) / "lower_layer.pth").write_text(f"import site; site.addsitedir({base!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *requirements], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
