"""The extras: what each promises is enough for its part, and what is missing is one line that names the extra."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from helpers import REPOSITORY
from making import job
from tachoscope_cli.app import app
from tachoscope_core.extras import EXTRAS
from tachoscope_core.storage.store import Store, default_url

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
COMMANDS: dict[str, list[str]] = {
    "demo": [],
    "run": ["--", "true"],
    "analyze": [],
    "goodput": ["planted"],
    "trace": ["trace.json"],
    "serving": ["http://127.0.0.1:1"],
    "hang": ["dumps"],
    "compare": ["planted", "other"],
    "capacity": ["chat.serving.gz"],
    "verify": [],
    "drill": ["hang"],
    "profile": ["--job", "planted"],
    "submit": ["trace.json"],
    "status": [],
    "cancel": ["planted"],
    "supervise": ["planted"],
    "efficiency": [],
    "nodes ls": [],
    "nodes explain": ["node-1"],
    "nodes audit": [],
    "nodes cordon": ["node-1", "--why", "planned"],
    "nodes return": ["node-1"],
    "nodes close-breaker": [],
    "nodes test": [],
    "explore": ["--port", "0"],
    "watch": ["--once"],
    "runbook": ["input_workers"],
    "agent": ["--port", "0"],
    "doctor": [],
    "preflight": ["--least", "nothing=1"],
    "job processes": ["planted"],
    "store ls": [],
    "store failures": [],
    "store add-traces": ["planted", "trace.json"],
    "store traces": ["planted"],
    "store quarantine": ["planted"],
    "store compact": [],
    "store prune": ["--records", "90d"],
    "store hold": ["planted"],
    "slo check": [],
    "slo build": [],
    "slo report": [],
    "slo backtest": ["inference-ttft"],
    "slo export": [],
    "dashboards build": [],
    "dashboards check": [],
    "dashboards push": ["--url", "http://127.0.0.1:1", "--token-env", "TOKEN"],
}
"""All commands, each with words that lead it to what it needs."""
WITHOUT_EXTRAS = {
    *("run", "verify", "runbook", "doctor", "job processes", "store traces", "store quarantine"),
    *("store prune", "store hold", "status", "cancel", "supervise"),
}
"""What the command does without any extra: all that a training machine needs."""
PACKAGES = {
    "probe": ["tachoscope_core", "tachoscope"],
    "agent": ["tachoscope_node", "tachoscope_service"],
    "analyze": ["tachoscope_analyzers", "tachoscope_alerts", "tachoscope_preflight", "tachoscope_show"],
    "dashboards": ["tachoscope_dashboards", "tachoscope_explorer"],
    "agent,analyze": ["tachoscope_watch"],
}
BEYOND = {
    "tachoscope_core.report.taxonomy": "analyze",
    "tachoscope_core.located_yaml": "analyze",
    "tachoscope_core.jobs.training_job_file": "analyze",
    "tachoscope_core.jobs.training_job_engines": "analyze",
    "tachoscope_core.yaml_text": "analyze",
    "tachoscope_service.metrics.otlp.exchange": "otlp",
    "tachoscope_service.metrics.otlp.points": "otlp",
}
"""Modules that need another extra than their package's."""
FOR_THE_RESOLVER = {"aiobotocore", "fsspec", "python-dateutil"}
"""What extras name for its bounds alone: something else asks for it."""


def plain(requirement: str) -> str:
    """Return the name of a requirement, as indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield " ".join(path)
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, (*path, name))


def without(hidden: Sequence[str], what: str, given: Any, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "tests" / "support" / "hidden_modules.py"), ",".join(hidden), what],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TOKEN": "x"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def hidden_but(extras: str) -> list[str]:
    """Return the modules of all extras that are not of these, nor of one that these include."""
    kept = {module for extra in with_included(extras) for module in EXTRAS.get(extra, ())}
    return sorted({module for modules in EXTRAS.values() for module in modules} - kept)


def with_included(extras: str) -> set[str]:
    names = set(extras.split(","))
    for extra in list(names):
        for requirement in PROJECT["optional-dependencies"][extra]:
            if of_ours := re.fullmatch(r"tachoscope\[([a-z0-9,]+)\]", requirement):
                names |= with_included(of_ours[1])
    return names


def test_the_table_of_modules_is_what_the_extras_bring() -> None:
    owners = importlib.metadata.packages_distributions()
    for extra, modules in EXTRAS.items():
        wanted = {plain(one) for one in PROJECT["optional-dependencies"][extra] if "[" not in one} - FOR_THE_RESOLVER
        brought = {module: wanted & {plain(owner) for owner in owners[module]} for module in modules}
        assert all(brought.values()), f"{extra}: {brought}"
        assert set().union(*brought.values()) == wanted, extra


def test_every_command_without_extras_does_its_work_or_names_the_extra_in_one_line(tmp_path: Path) -> None:
    assert set(leaves(typer.main.get_command(app))) == set(COMMANDS)
    writer = f"{1:08d}-0000-4000-8000-000000000000"
    lines = job([[{"forward": 0.1, "backward": 0.2}]] * 40)
    Store(default_url()).write("planted", host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=lines)
    (tmp_path / "trace.json").write_text("{}")

    told = without(hidden_but("probe"), "commands", [[*name.split(), *words] for name, words in COMMANDS.items()], tmp_path)

    for name, (code, stderr) in zip(COMMANDS, told, strict=True):
        assert "Traceback" not in stderr, f"{name}: {stderr}"
        if name in WITHOUT_EXTRAS:
            assert "pip install" not in stderr, f"{name}: {stderr}"
        else:
            assert (code, stderr.count("\n")) == (2, 1), f"{name}: {stderr}"
            assert re.search(r"needs \w+ \(pip install 'tachoscope\[[a-z,]+\]'\)", stderr), f"{name}: {stderr}"


@pytest.mark.parametrize("extras", PACKAGES)
@pytest.mark.bar(but=("probe", "agent", "dashboards"))
def test_each_package_imports_with_what_its_extra_brings(extras: str, tmp_path: Path) -> None:
    errors = without(hidden_but(extras), "imports", PACKAGES[extras], tmp_path)

    assert [one for package in errors for one in package if one.partition(":")[0] not in BEYOND] == []


def test_no_extra_names_one_exact_version_and_probe_asks_for_nothing_beside_torch() -> None:
    extras = PROJECT["optional-dependencies"]

    assert [one for some in extras.values() for one in some if "==" in one] == []
    assert extras["probe"] == []
    assert set(re.findall(r"[a-z0-9]+", extras["all"][0])) - {"tachoscope"} == extras.keys() - {"all", "probe"}
