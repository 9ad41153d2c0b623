"""Reads a Dockerfile, and builds its stages without Docker: COPY and RUN are carried out, each stage in a folder of its own.

The base image is a new virtual environment of this Python. Not emulated: other bases, ADD, build caches, users.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

_PATHS = re.compile(r"(?<![\w.=/-])/(?=(?:src|wheels|probe|opt|place\.py)\b)")
"""Where a command names a path of the image: of these folders alone, so that nothing of the machine's is meant."""


@dataclass
class Stage:
    """A stage: its base (an image or another stage) and its instructions in their order, as (name, rest of the line)."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.instructions if name == instruction]

    def words(self, instruction: str) -> list[str]:
        """Return the words of the last ENTRYPOINT or CMD; only their form without a shell is known."""
        words: list[str] = json.loads(self.all(instruction)[-1])
        return words


def parse(text: str) -> tuple[dict[str, str], dict[str, Stage]]:
    """Return the arguments before the first stage, with their defaults, and the stages by name in their order."""
    lines = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))).splitlines()
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    for line in filter(str.strip, lines):
        instruction, rest = line.split(None, 1)
        if instruction == "FROM":
            base, _, name = rest.split()
            stages[name] = Stage(name, re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], base))
        elif stages:
            stages[next(reversed(stages))].instructions.append((instruction, rest))
        else:
            key, _, value = rest.partition("=")
            arguments[key] = value
    return arguments, stages


def context_files(context: Path, ignore: Path) -> list[Path]:
    """Return the files of a context that its dockerignore leaves, for an ignore file that begins with `*`."""
    rules = [line.strip() for line in ignore.read_text().splitlines() if line.strip()]
    assert rules[0] == "*"
    kept = [file for rule in rules[1:] if rule.startswith("!") for file in _files(context / rule[1:])]
    dropped = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    return [file for file in kept if not any(fnmatch.fnmatch(part, rule) for part in file.parts for rule in dropped)]


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


class Build:
    """Builds stages below a folder; `root(stage)` is what would be the image's root."""

    def __init__(self, stages: dict[str, Stage], context: Path, ignore: Path, folder: Path) -> None:
        self._stages = stages
        self._context = context
        self._files = context_files(context, ignore)
        self._folder = folder
        self._built: set[str] = set()
        subprocess.run([sys.executable, "-m", "venv", str(folder / "base")], check=True)

    def root(self, name: str) -> Path:
        stage, root = self._stages[name], self._folder / name
        if name in self._built:
            return root
        root.mkdir()
        if stage.base in self._stages:
            shutil.copytree(self.root(stage.base), root, dirs_exist_ok=True, symlinks=True)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TACHOSCOPE"))}
        environ["PATH"] = f"{self._folder / 'base' / 'bin'}{os.pathsep}{environ['PATH']}"
        for instruction, rest in stage.instructions:
            if instruction == "ARG":
                key, _, value = rest.partition("=")
                environ[key] = value
            elif instruction == "COPY":
                self._copy(rest.split(), root)
            elif instruction == "RUN":
                command = _PATHS.sub(f"{root}/", rest)
                shell = ["sh", "-c", command]
                done = subprocess.run(shell, cwd=root / "src", env=environ, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        self._built.add(name)
        return root

    def _copy(self, words: list[str], root: Path) -> None:
        origin = self._context
        if words[0].startswith("--from="):
            origin = self.root(words.pop(0).removeprefix("--from="))
        *sources, target = words
        base = root / target.lstrip("/") if target.startswith("/") else root / "src" / target
        for source in sources:
            path = origin / source.lstrip("/")
            to = base / path.name if len(sources) > 1 or target.endswith("/") else base
            if origin != self._context:
                shutil.copytree(path, to, symlinks=True) if path.is_dir() else _copy_file(path, to)
                continue
            files = [file for file in self._files if file == path or path in file.parents]
            assert files, f"COPY {source}: the context has no such file; is it in the dockerignore?"
            for file in files:
                _copy_file(file, to if file == path else to / file.relative_to(path))


def _copy_file(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, to)
