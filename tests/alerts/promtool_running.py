"""The real promtool, told of rules and tests as documents."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tachoscope_alerts.written_yaml import to_yaml

Document = Mapping[str, Any]


def lint(folder: Path, documents: Mapping[str, Document]) -> str:
    """Return what `promtool check rules --lint=all` says about rule files by name; "" if all is well."""
    done = _promtool(folder, documents, ["check", "rules", "--lint=all", "--lint-fatal", *documents])
    return "" if done.returncode == 0 and "FAILED" not in done.stdout else done.stdout


def faults(folder: Path, rules: Mapping[str, Document], tests: Mapping[str, Document]) -> dict[str, str]:
    """Run all test files at once; return what each that failed says, by its name."""
    done = _promtool(folder, {**rules, **tests}, ["test", "rules", *tests])
    parts = re.split(r"^Unit Testing: +(\S+)\n", done.stdout, flags=re.MULTILINE)
    said = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert said.keys() == tests.keys(), done.stdout
    return {name: text for name, text in said.items() if text.strip() != "SUCCESS"}


def _promtool(folder: Path, documents: Mapping[str, Document], words: list[str]) -> subprocess.CompletedProcess[str]:
    for name, document in documents.items():
        (folder / name).write_text(to_yaml(dict(document)))
    command = ["promtool", *words]
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
