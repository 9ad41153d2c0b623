"""Whether `pip install '.[all]'` resolves, and how long that takes: each installer in a bare virtual environment of its own.

Resolving is a dry run; installing resolves again, with what that downloaded in the installer's cache. PyTorch is in no extra.

    python benchmarks/install_matrix.py            # print
    python benchmarks/install_matrix.py --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
INSTALLERS = {
    "pip==23.0.1": "Debian 12",
    "pip==23.2.1": "Python 3.11.7",
    "pip==24.0": "Ubuntu 24.04",
    "pip": "the newest",
    "uv": "the newest",
}
LIMIT_SECONDS = 120.0
"""What resolving may take on a machine that does nothing else."""


@dataclass(frozen=True)
class Took:
    """The wall and processor seconds of a command and its children."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Installed:
    """What an installer took to resolve and to install all extras, and what is there then."""

    version: str
    resolving: Took
    installing: Took
    packages: int
    bin: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    heads = ["| installer | comes with | resolving: wall, CPU | installing: wall, CPU | packages |", "|---|---|---|---|---|"]
    rows = []
    for installer, origin in INSTALLERS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(origin, install(installer, Path(folder))))
            print(rows[-1], flush=True)
    if options.write:
        from sections import write_section

        write_section("install_matrix", "\n".join([*heads, *rows]))


def row(origin: str, found: Installed) -> str:
    took = (f"{one.seconds:.0f} s, {one.cpu_seconds:.0f} s" for one in (found.resolving, found.installing))
    return f"| {found.version} | {origin} | {' | '.join(took)} | {found.packages} |"


def install(installer: str, folder: Path) -> Installed:
    """Resolve and install all extras by this installer, in a new environment in this folder.

    Raises:
        subprocess.CalledProcessError: it does not resolve, is not installed, or what is installed does not agree.
    """
    run(sys.executable, "-m", "venv", folder / "venv")
    bin_ = folder / "venv" / "bin"
    run(bin_ / "python", "-m", "pip", "install", "--quiet", "--upgrade", installer)
    tool = [bin_ / "uv", "pip"] if installer == "uv" else [bin_ / "python", "-m", "pip"]
    python = ["--python", bin_ / "python"] if installer == "uv" else []
    resolving = timed(*tool, "install", *python, "--dry-run", f"{REPOSITORY}[all]")
    installing = timed(*tool, "install", *python, f"{REPOSITORY}[all]")
    run(*tool, "check", *python)
    packages = len(run(*tool, "list", *python, "--format", "freeze").splitlines())
    name = installer.partition("=")[0]
    version = run(bin_ / "python", "-c", f"import importlib.metadata as m; print('{name}', m.version('{name}'))")
    return Installed(version.strip(), resolving, installing, packages, bin_)


def timed(*words: str | Path) -> Took:
    began, cpu_began = time.perf_counter(), cpu_seconds()
    run(*words)
    return Took(time.perf_counter() - began, cpu_seconds() - cpu_began)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*words: str | Path) -> str:
    """Run a command of a user who has none of our environment; return what it printed."""
    user = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run([str(word) for word in words], env=user, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-4000:])
    done.check_returncode()
    return done.stdout


if __name__ == "__main__":
    main()
