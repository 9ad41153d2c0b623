"""How many planted faults the tests find: mutants of cosmic-ray, the same ones each time, in ten modules that much depends on.

Each mutant changes one place of a copy of the tree, and the tests of that module run until one fails: those of `make test`, then,
for what these do not find, those that only `make bars` runs. Mutants that nothing finds are named.

    python benchmarks/mutants.py                        # 10 mutants of each module: hours on two cores
    python benchmarks/mutants.py --mutants 4 --write
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sections import write_section

REPOSITORY = Path(__file__).parents[1]
MAKER = "cosmic-ray==8.7.0"
MOST_SECONDS = 900
SOURCES = ("core", "agents", "analyzers", "alerts", "dashboards", "cli")
_OF_RECORDS = " ".join(
    f"tests/analyzers/{room}" for room in ("records", "findings", "classify", "job", "attempts", "life", "compare")
)
TESTS = {
    "agents/tachoscope/training/step_machine.py": (
        "tests/end_to_end/test_steps.py tests/end_to_end/test_odd_jobs.py tests/probe/training"
    ),
    "core/tachoscope_core/storage/store.py": "tests/core tests/node/test_agent.py tests/probe/spool tests/alerts/measure",
    "core/tachoscope_core/redaction.py": "tests/core/test_redaction.py",
    "agents/tachoscope_node/spool/follower.py": "tests/node",
    "analyzers/tachoscope_analyzers/records/steps.py": _OF_RECORDS,
    "analyzers/tachoscope_analyzers/findings/make.py": _OF_RECORDS,
    "analyzers/tachoscope_analyzers/life/report.py": _OF_RECORDS,
    "alerts/tachoscope_alerts/compile/sli_expressions.py": "tests/alerts",
    "alerts/tachoscope_alerts/measure/evaluator.py": "tests/alerts",
    "analyzers/tachoscope_analyzers/trace/reading/decode_events.py": "tests/analyzers/trace",
}
MAKE = """
import json, sys
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from pathlib import Path
tree, found = get_ast_from_path(Path(sys.argv[1])), []
for name in sorted(operator_names()):
    if "Variable" in name or "BitOr" in name:  # of a type `int | None` nothing depends on
        continue
    operator = get_operator(name)()
    places = [place for node in ast_nodes(tree) for place in operator.mutation_positions(node)]
    found += [(name, number, place[0][0]) for number, place in enumerate(places)]
if len(sys.argv) == 2:
    print(json.dumps(found))
else:
    print(mutate_code(Path(sys.argv[1]).read_text(), get_operator(sys.argv[2])(), int(sys.argv[3])), end="")
"""
"""Run by the Python in which cosmic-ray is: it lists the mutations of a file, or prints the file with one of them."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation: the module, cosmic-ray's operator, which of its places in the module, and the line."""

    module: str
    operator: str
    occurrence: int
    line: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=10, help="of each module")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    python = maker()
    chosen = [mutant for module in TESTS for mutant in sample(python, module, options.mutants)]
    left = [mutant for mutant in chosen if not is_found(python, mutant)]
    unfound = [mutant for mutant in left if not is_found(python, mutant, bars=True)]
    text = table(chosen, left, unfound)
    print(text)
    if options.write:
        write_section("mutants", text)


def maker() -> str:
    """Return a Python that has cosmic-ray, in a folder of its own."""
    folder = REPOSITORY / "build" / "mutants"
    if not (folder / "bin" / "cosmic-ray").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", MAKER], check=True)
    return str(folder / "bin" / "python")


def sample(python: str, module: str, count: int) -> list[Mutant]:
    done = subprocess.run([python, "-c", MAKE, str(REPOSITORY / module)], capture_output=True, text=True, check=True)
    places = [Mutant(module, *place) for place in json.loads(done.stdout)]
    return random.Random(24).sample(places, min(count, len(places)))


def is_found(python: str, mutant: Mutant, *, bars: bool = False) -> bool:
    """Return whether a test of the mutant's module fails; `bars`: of those that only `make bars` runs."""
    words = [python, "-c", MAKE, str(REPOSITORY / mutant.module), mutant.operator, str(mutant.occurrence)]
    changed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        (copy / mutant.module).write_text(changed)
        tests = [path for path in TESTS[mutant.module].split() if (copy / path).exists()]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(str(copy / source) for source in SOURCES)}
        chosen = "bar and not alone" if bars else "not alone"
        command = [sys.executable, "-m", "pytest", "-x", "-n", "2", "-m", chosen, "-p", "no:cacheprovider", *tests]
        command += ["--bar-runs", "10"] if bars else []
        try:
            done = subprocess.run(command, cwd=copy, env=environ, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return not bars  # it hangs; those of the bars take their time
    print(f"{mutant.module}:{mutant.line} {mutant.operator}{' by bars' if bars else ''}: exit {done.returncode}", flush=True)
    return done.returncode not in {0, 5}  # 5: there are none


def copied(folder: Path) -> Path:
    """Copy the tree, and what lies beside it for tests to read."""
    copy = folder / REPOSITORY.name
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, tracked):
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name)
    if (REPOSITORY.parent / "shared").exists():
        (folder / "shared").symlink_to((REPOSITORY.parent / "shared").resolve())
    return copy


def table(chosen: list[Mutant], left: list[Mutant], unfound: list[Mutant]) -> str:
    every, missed, never = (Counter(mutant.module for mutant in mutants) for mutants in (chosen, left, unfound))
    lines = ["| module | mutants | found by `make test` | and by `make bars` |", "|---|---|---|---|"]
    for module in (*TESTS, "all"):
        total, one, both = (sum(counts.values()) if module == "all" else counts[module] for counts in (every, missed, never))
        lines.append(f"| {module} | {total} | {total - one} | {total - both} |")
    return "\n".join([*lines, "", "Not found: " + "; ".join(f"{one.module}:{one.line} {one.operator}" for one in unfound)])


if __name__ == "__main__":
    main()
