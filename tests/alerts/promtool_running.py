"""The real promtool, told of rules and tests as documents."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
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

    promtool evaluates every rule of a file in each of its tests: each test here gets a file with the rules that it asks for, and
    with those that these read.
    """
    documents: dict[str, Document] = {}
    runs: dict[str, str] = {}
    for name, test in tests.items():
        for kept, blocks in _by_rules([rules[file] for file in test["rule_files"]], test).items():
            apart = f"{len(runs)}_{name}"
            files = {f"{len(runs)}_{file}": _only(rules[file], kept) for file in test["rule_files"]}
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


def _by_rules(files: Sequence[Document], test: Document) -> dict[frozenset[str], list[Any]]:
    """Return the tests of a file by the names of the rules that they need."""
    reads: dict[str, set[str]] = {}
    for rule in (rule for file in files for group in file["groups"] for rule in group["rules"]):
        reads.setdefault(_name(rule), set()).update(_words(str(rule)))
    found: dict[frozenset[str], list[Any]] = {}
    for block in test["tests"]:
        alerts = [one["alertname"] for one in block.get("alert_rule_test", [])]
        asked = [one["expr"] for one in block.get("promql_expr_test", [])]
        found.setdefault(_needed(_words(" ".join((*alerts, *asked))), reads), []).append(block)
    return found


def _needed(words: set[str], reads: Mapping[str, set[str]]) -> frozenset[str]:
    """Return the names of rules among the words, those that these rules read, and so on."""
    needed: set[str] = set()
    further = words & reads.keys()
    while further:
        needed |= further
        further = set().union(*(reads[name] for name in further)) & reads.keys() - needed
    return frozenset(needed)


def _only(rules: Document, names: frozenset[str]) -> Document:
    """Return a file of rules with those of these names."""
    groups = [{**group, "rules": [rule for rule in group["rules"] if _name(rule) in names]} for group in rules["groups"]]
    return {**rules, "groups": [group for group in groups if group["rules"]]}


def _name(rule: Mapping[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w:]+", text))


def _promtool(folder: Path, documents: Mapping[str, Document], words: list[str]) -> subprocess.CompletedProcess[str]:
    for name, document in documents.items():
        (folder / name).write_text(to_yaml(dict(document)))
    command = ["promtool", *words]
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
