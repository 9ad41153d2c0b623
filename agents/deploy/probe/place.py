"""The init container: copies the probe into the pod's volume, and marks the pod's directory of the spool.

The mark keeps the agent from removing the directory while the pod lives, when all its records are shipped: the pod could not
make it again. A failure is one line, and the pod starts without the probe: observing must never keep a job from running.
"""

import shutil
import sys
from pathlib import Path

MARK = ".pod"


def place(probe: Path, target: Path, spool: Path) -> list[str]:
    """Copy `probe` to `target` and mark `spool`; return what failed."""
    failures = []
    try:
        for folder in probe.iterdir():  # the volume's own root may be another user's, and its mode cannot be copied
            shutil.copytree(folder, target / folder.name, copy_function=shutil.copyfile, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        failures.append(f"the probe is not in {target}, and the job runs without it: {error}")
    try:
        (spool / MARK).touch()
    except OSError as error:
        failures.append(f"{spool} is not writable, and what the probe records is lost: {error.strerror}")
    return failures


if __name__ == "__main__":
    for line in place(*(Path(word) for word in sys.argv[1:4])):
        sys.stderr.write(f"tachoscope: {line}\n")
