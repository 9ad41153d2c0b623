"""Unpacks wheels into what the probe's image holds: `lib`, what a job imports of us, and `on`, what switches it on."""

import shutil
import sys
import zipfile
from pathlib import Path

NEEDED = ("tachoscope", "tachoscope_core", "msgspec")
"""Import names. The wheels of msgspec for several Pythons go into one folder: they differ in the name of one binary module."""


def unpack(wheels: Path, target: Path) -> None:
    """Unpack the needed packages of all wheels in a folder, with what says which version they are."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target / "lib", [name for name in archive.namelist() if _is_needed(name)])
    (target / "on").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("sitecustomize.py"), target / "on" / "sitecustomize.py")


def _is_needed(name: str) -> bool:
    folder = name.split("/")[0]
    return folder in NEEDED or (folder.endswith(".dist-info") and folder.split("-")[0] in NEEDED)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
