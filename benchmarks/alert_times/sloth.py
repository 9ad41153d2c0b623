"""When pages fire, beside those that Sloth makes of the same file, for outages of random depth and length.

Sloth's rules are those that it publishes as made of its own examples (`examples/_gen` of https://github.com/slok/sloth); ours are
made of the same example. Both are evaluated every 30 s by promtool's Prometheus over the same counters. Tickets are left out: ours
are evaluated every 4 minutes, and promtool evaluates all rules at one interval.

    python -m benchmarks.alert_times.sloth SLOTH/examples             # print
    python -m benchmarks.alert_times.sloth SLOTH/examples --write     # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import math
import random
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from benchmarks.alert_times.detection import Nowhere
from benchmarks.sections import write_section

from tachoscope_alerts.compile.planted_series import PlantedStretch, of_events
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.compile.yaml_writer import to_yaml
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Slo

EXAMPLE = "getting-started.yml"
EVALUATION = 30
HISTORY_SECONDS = 7 * 3600
LENGTHS = (300, 7200)
SHARES = (0.004, 1.0)
"""Of requests that fail; the objective is 99.9 %."""
REST = 1800
NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Outage:
    """So many seconds in which a share of the requests fails, after a history in which none does."""

    seconds: int
    share: float


@dataclass(frozen=True, slots=True)
class Fired:
    """Seconds from the begin of an outage to the first page; NEVER: there is none."""

    outage: Outage
    theirs: float
    ours: float

    @property
    def evaluations_later(self) -> float:
        """How many evaluations our alert comes after theirs; NaN where one or both never fire."""
        return (self.ours - self.theirs) / EVALUATION if math.isfinite(self.ours - self.theirs) else math.nan


def outages(count: int, seed: int) -> list[Outage]:
    """Return random outages."""
    drawn, found = random.Random(seed), []
    (shortest, longest), (low, high) = LENGTHS, SHARES
    for _ in range(count):
        seconds = round(shortest * (longest / shortest) ** drawn.random() / EVALUATION) * EVALUATION
        found.append(Outage(seconds, low * (high / low) ** drawn.random()))
    return found


def fired(outage: Outage, examples: Path) -> Fired:
    """Return when both fire."""
    (slo,) = slo_files.read(examples / EXAMPLE)
    rules = [*yaml.safe_load((examples / "_gen" / EXAMPLE).read_text())["groups"], *groups(slo, Nowhere(), Timing())]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yaml").write_text(to_yaml({"groups": rules}))
        (Path(folder) / "test.yaml").write_text(to_yaml(_test(slo, outage, [group["name"] for group in rules])))
        command = ["promtool", "test", "rules", "test.yaml"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    theirs, ours = (_first(done.stdout + done.stderr, label) for label in ("sloth_severity", "severity"))
    return Fired(outage, theirs - HISTORY_SECONDS, ours - HISTORY_SECONDS)


def _first(printed: str, label: str) -> float:
    """Return the second of the first alert that has a label of the given name."""
    got = re.search(rf"got:\s*\{{by=\"{label}\"\}} ([0-9.E+]+)", printed)
    return float(got[1]) if got else NEVER


def _test(slo: Slo, outage: Outage, names: list[str]) -> dict[str, Any]:
    history, requests = HISTORY_SECONDS, 100_000
    spans = ((history, 0.0), (outage.seconds, outage.share), (REST, 0.0))
    stretches = [PlantedStretch(int(seconds / EVALUATION), requests, round(requests * share)) for seconds, share in spans]
    end = f"{history + outage.seconds + REST}s"
    chosen = {"sloth_severity": 'sloth_severity="page"', "severity": f'slo="{slo.name}",severity="page"'}
    # Nothing is expected, so that promtool prints what there is.
    asked = [
        {
            "expr": f'label_replace(min(min_over_time(timestamp(ALERTS{{alertstate="firing",{matchers}}})[{end}:{EVALUATION}s])), '
            f'"by", "{label}", "", "")',
            "eval_time": end,
        }
        for label, matchers in chosen.items()
    ]
    block = {"interval": f"{EVALUATION}s", "input_series": of_events(slo, stretches, {}), "promql_expr_test": asked}
    return {"rule_files": ["rules.yaml"], "evaluation_interval": f"{EVALUATION}s", "group_eval_order": names, "tests": [block]}


def table(found: Sequence[Fired]) -> str:
    """Return how many alerts fire at the same evaluation, and how far the others are apart."""
    neither = sum(math.isinf(one.ours) and math.isinf(one.theirs) for one in found)
    apart = sorted(one.evaluations_later for one in found if not math.isnan(one.evaluations_later))
    lines = [
        "| outages | neither fires | one alone | both | at the same evaluation | evaluations later, least to most |",
        "|---|---|---|---|---|---|",
    ]
    span = f"{apart[0]:.0f} to {apart[-1]:.0f}" if apart else "-"
    same = sum(one == 0 for one in apart)
    lines.append(f"| {len(found)} | {neither} | {len(found) - neither - len(apart)} | {len(apart)} | {same} | {span} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", type=Path, help="the folder `examples` of a checkout of Sloth")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    given = parser.parse_args()
    found = []
    for outage in outages(given.count, given.seed):
        found.append(fired(outage, given.examples))
        print(found[-1], flush=True)
    print(table(found))
    if given.write:
        write_section("alerts_of_sloth", table(found), "python -m benchmarks.alert_times.sloth SLOTH/examples --write")


if __name__ == "__main__":
    main()
