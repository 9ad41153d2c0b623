"""Objectives from files: OpenSLO, and what was written for Sloth or Pyrra. A file may hold documents of several kinds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tachoscope_alerts.spec import openslo, openslo_alpha, pyrra, sloth
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Section, Value, documents


def load(paths: Iterable[Path]) -> list[Slo]:
    """Return the objectives of files, and of the `*.yaml` and `*.yml` in folders.

    Raises:
        TachoscopeError: a file cannot be read, or its first mistake: file, line, offender and way out.
    """
    return [slo for path in files(paths) for slo in read(path)]


def files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that paths mean: themselves, and of folders what is YAML in them.

    Raises:
        TachoscopeError: a path does not exist, or a folder contains no YAML file.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(one for one in path.iterdir() if one.suffix in {".yaml", ".yml"}) if path.is_dir() else [path]
        if not path.exists() or not inside:
            problem = "contains no *.yaml" if path.exists() else "does not exist"
            raise TachoscopeError(f"{path} {problem}", fix="name files of OpenSLO, Sloth or Pyrra, or a folder of them")
        found += inside
    return found


def read(path: Path) -> list[Slo]:
    """Return the objectives of a file, in their order; documents of other kinds are skipped.

    Raises:
        TachoscopeError: the file cannot be read, or its first mistake: file, line, offender and way out.
    """
    parts = [part for top in documents(path) for part in (top.items() if top.is_list else [top])]
    kinds = [_format(part) for part in parts]
    shared = openslo.shared_indicators(part for part, kind in zip(parts, kinds, strict=True) if kind == "openslo")
    return [slo for part, kind in zip(parts, kinds, strict=True) for slo in _read(part, kind, shared)]


def _read(part: Value, kind: str, shared: dict[str, Section]) -> list[Slo]:
    if kind == "openslo":
        return openslo.read(part, shared)
    return {"openslo/v1alpha": openslo_alpha.read, "sloth": sloth.read, "pyrra": pyrra.read}[kind](part)


def _format(part: Value) -> str:
    """Return what a document was written for; OpenSLO refuses what it is not."""
    section = part.section()
    if "version" in section.values and "apiVersion" not in section.values:
        version = section.values["version"]
        if version.word() != sloth.VERSION:
            raise version.error(f"is {version.word()!r}", f"of Sloth's files only {sloth.VERSION} is read")
        return "sloth"
    head = [value.word() if (value := section.get(key)) else "" for key in ("apiVersion", "kind")]
    if head[0] == openslo_alpha.VERSION:
        return openslo_alpha.VERSION
    return {sloth.RESOURCE: "sloth", pyrra.RESOURCE: "pyrra"}.get((head[0], head[1]), "openslo")
