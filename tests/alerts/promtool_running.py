"""The real promtool, told of rules and tests as documents."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tachoscope_alerts.compile.yaml_writer import to_yaml

Document = Mapping[str, Any]


def lint(folder: Path, documents: Mapping[str, Document]) -> str:
    """Return what `promtool check rules --lint=all` says about rule files by name; "" if all is well."""
    done = _promtool(folder, documents, ["check", "rules", "--lint=all", "--lint-fatal", *documents])
    return "" if done.returncode == 0 and "FAILED" not in done.stdout else done.stdout


def faults(folder: Path, rules: Mapping[str, Document], tests: Mapping[str, Document]) -> dict[str, str]:
    """Run all test files at once; return what each that failed says, by its name.

    promtool evaluates every rule of a file in each of its tests: each test here gets a file with the rules that it asks for.
    """
    documents: dict[str, Document] = {}
    runs: dict[str, str] = {}
    for name, test in tests.items():
        for wanted, blocks in _by_alerts(rules, test).items():
            apart = f"{len(runs)}_{name}"
            files = {f"{len(runs)}_{file}": _only(rules[file], wanted) for file in test["rule_files"]}
            documents |= {**files, apart: {**test, "rule_files": list(files), "tests": blocks}}
            runs[apart] = name
    done = _promtool(folder, documents, ["test", "rules", *runs])
    parts = re.split(r"^Unit Testing: +(\S+)\n", done.stdout, flags=re.MULTILINE)
    said = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert said.keys() == runs.keys(), done.stdout
    failed: dict[str, str] = {}
    for apart, text in said.items():
        if text.strip() != "SUCCESS":
            failed[runs[apart]] = failed.get(runs[apart], "") + text
    return failed


def _by_alerts(rules: Mapping[str, Document], test: Document) -> dict[frozenset[str], list[Any]]:
    """Return the tests of a file by the names of the alerts that they ask for, and of those that these look at."""
    looks_at = {
        rule["alert"]: set(re.findall(r'ALERTS\{alertname="(\w+)"', rule["expr"]))
        for file in test["rule_files"]
        for group in rules[file]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    found: dict[frozenset[str], list[Any]] = {}
    for block in test["tests"]:
        asked = {one["alertname"] for one in block.get("alert_rule_test", [])}
        asked |= set(re.findall(r'alertname="(\w+)"', " ".join(one["expr"] for one in block.get("promql_expr_test", []))))
        wanted = asked.union(*(looks_at.get(alert, set()) for alert in asked))
        found.setdefault(frozenset(wanted), []).append(block)
    return found


def _only(rules: Document, alerts: frozenset[str]) -> Document:
    """Return a file of rules with what it records and the named alerts."""
    groups = [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert", "") in {"", *alerts}]} for group in rules["groups"]
    ]
    return {**rules, "groups": [group for group in groups if group["rules"]]}


def _promtool(folder: Path, documents: Mapping[str, Document], words: list[str]) -> subprocess.CompletedProcess[str]:
    for name, document in documents.items():
        (folder / name).write_text(to_yaml(dict(document)))
    command = ["promtool", *words]
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
