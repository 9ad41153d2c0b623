"""Compiles the native modules: a build hook of hatchling, and for developers `python hatch_build.py`, which compiles them in place.

Each `name.c` in a package of the wheel becomes the module `name` beside it, against the limited API of Python 3.11: one file for
all later versions. What cannot be compiled is left out, and the Python that it stands in for does the work.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
LIMITED_API = "0x030B0000"
TAG = "cp311-abi3"
SUFFIX = ".abi3.so"


class NativeModules(BuildHookInterface[Any]):
    """Puts the modules into the wheel, whose tag then names the platform; an editable installation gets them in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            said = compile_in_place()
        else:
            self._folder = tempfile.TemporaryDirectory()  # until the wheel is written
            compiled, said = compile_into(Path(self._folder.name))
            for source, module in compiled.items():
                build_data["force_include"][str(module)] = str(_inside_package_root(source).with_suffix(SUFFIX))
            if compiled:
                build_data["pure_python"] = False
                build_data["tag"] = f"{TAG}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        self.app.display_info(said)


def sources() -> list[Path]:
    """Return the C files of all packages, below the root of the project."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    return [path.relative_to(ROOT) for package in wheel["packages"] for path in sorted((ROOT / package).rglob("*.c"))]


def compile_in_place() -> str:
    """Compile the modules beside their sources, and return a line that says what was done. One that fails is removed."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, said = compile_into(Path(folder))
        for source in sources():
            place = ROOT / source.with_suffix(SUFFIX)
            place.unlink(missing_ok=True)  # never written over: a process may have it mapped
            if source in compiled:
                shutil.copyfile(compiled[source], place)
    return said


def compile_into(folder: Path) -> tuple[dict[Path, Path], str]:
    """Return the compiled module of each source that could be compiled, and a line that says which and why not."""
    wanted = sources()
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return {}, "native modules: none, this Python has no limited API"
    try:
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
    except ImportError as error:
        return {}, f"native modules: none, {error}"
    extensions = [
        Extension(
            ".".join(_inside_package_root(source).with_suffix("").parts),
            [str(ROOT / source)],
            define_macros=[("Py_LIMITED_API", LIMITED_API)],
            depends=[str(path) for path in (ROOT / source).parent.glob("*.h")],
            extra_compile_args=["-std=gnu11", "-O2", "-Wall"],
            py_limited_api=True,
            optional=True,
        )
        for source in wanted
    ]
    command = build_ext(Distribution({"name": "tachoscope", "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
    command.ensure_finalized()
    with contextlib.redirect_stdout(sys.stderr):  # a build backend's output is no place for what a compiler says
        command.run()
    made = {source: folder / "lib" / _inside_package_root(source).with_suffix(SUFFIX) for source in wanted}
    compiled = {source: path for source, path in made.items() if path.exists()}
    failed = [str(source) for source in wanted if source not in compiled]
    said = f"native modules: {len(compiled)} of {len(wanted)} compiled"
    return compiled, said + (f"; no C compiler, or it failed: {', '.join(failed)}, done in Python" if failed else "")


def _inside_package_root(source: Path) -> Path:
    """Return the path of a source below the folder that is on the path of imports: `agents/tachoscope/a.c`: `tachoscope/a.c`."""
    return source.relative_to(source.parts[0])


if __name__ == "__main__":
    sys.stderr.write(compile_in_place() + "\n")
