"""Writes what is made from the code: pages (bottlenecks, metrics, commands), tables in others, rules of the objectives, boards.

python tools/generate.py            # write
python tools/generate.py --check    # exit with 1 if one is not current
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer
import typer.core
import typer.main

from generate_alerts import alert_files, alert_runbooks, detection_times, objective_table
from generate_dashboards import dashboard_files
from generate_llms import llms_file
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, lost_at_failure, useful_ratio
from tachoscope_analyzers.checkpoint_policy.preemptible import DAY, Preemption, expected
from tachoscope_analyzers.classify.communication.exposed import CLASSES as EXCHANGE_CLASSES
from tachoscope_analyzers.classify.gpu.losses import CLASSES as GPU_CLASSES
from tachoscope_analyzers.data.prices import shipped_prices
from tachoscope_analyzers.data.thresholds import sources
from tachoscope_analyzers.findings.missing_signals import missing_signals
from tachoscope_analyzers.life.findings import CLASSES as LIFE_CLASSES
from tachoscope_analyzers.serving.report.report import CLASSES as SERVING_CLASSES
from tachoscope_analyzers.stats.duration_text import in_words
from tachoscope_analyzers.trace.findings.report import FOUND
from tachoscope_cli.app import app
from tachoscope_cli.common.answers import ANSWERS
from tachoscope_core.exit_codes import MEANINGS, OF_COMMANDS
from tachoscope_core.metrics.catalogue import METRICS, TRAINING_STATES
from tachoscope_core.metrics.dcgm import DCGM_BY_NAME, DCGM_UNITS
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_core.servers import SERVERS, SIGNALS, Signal, catalogue
from tachoscope_core.servers.snapshot import HISTOGRAMS
from tachoscope_node.gpu.dcgm.fields import FIELDS, Field
from tachoscope_node.gpu.health.rules import thresholds as health_thresholds
from tachoscope_node.gpu.nvml.conversions import UNITS
from tachoscope_node.gpu.nvml.sources import ALL_LINKS, SOURCES, ValueSource

HERE = Path(__file__).parents[1] / "docs"
WITH_MORE_CLASSES = ("host_memory", "async_staleness", "silent_corruption", "recompilation")
"""Found from records that a job has only if it asks for them, or that older probes did not write."""
HEAD = "<!-- Made by tools/generate.py: change the code, then `make generate`. -->\n"


def bottlenecks() -> str:
    """Return the page of all classes, with what is found today and what it would take to find the others."""
    rows = []
    for entry in BY_SLUG.values():
        looked_for = entry.slug not in missing_signals() or entry.slug == "h2d_copy"
        page = f"[{entry.slug}](../../{entry.runbook})"
        need = "on CUDA" if entry.slug == "h2d_copy" else "yes" if looked_for else f"no: needs {missing_signals()[entry.slug]}"
        need = f"on CUDA, with {missing_signals()[entry.slug]}" if entry.slug in GPU_CLASSES else need
        need = f"with {missing_signals()[entry.slug]}" if entry.slug in EXCHANGE_CLASSES else need
        need = "with two ranks or more, if it passed; else `tachoscope goodput`" if entry.slug == "hang" else need
        need = "of a server, with `tachoscope serving`" if entry.slug in SERVING_CLASSES else need
        need = f"with {missing_signals()[entry.slug]}" if entry.slug in WITH_MORE_CLASSES else need
        need = "of the whole life, with `tachoscope goodput`" if need.startswith("no: ") and entry.slug in LIFE_CLASSES else need
        rows.append(f"| {page} | {entry.title} | `{entry.state}` | {need} | {'yes' if entry.slug in FOUND else ''} |")
    limits = [f"| `{name}` | {value:g} | {source} |" for name, (value, source) in sources().items()]
    return "\n".join(
        [
            "# Bottlenecks",
            "The closed list of classes, the ledger state that each inflates, and whether it is found today.",
            "",
            "| class | what it is | ledger state | from step records | from profiler traces |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## Severity",
            "A finding is a warning if the lower end of the 95 % interval of its share reaches `warning_share`, and critical",
            "if it reaches `critical_share`; otherwise it is info, with its seconds. What happened once (one validation, one",
            "checkpoint) has an interval that begins at 0. A condition of the machine, such as other processes on its cores,",
            "stands after what the job can change and is never critical. Unexplained time of which most samples are within",
            "the model is info. A pause between two loops, such as two cells of a notebook, is a note on the data: it is in",
            "neither the step nor the ledger.",
            "",
            "A small loss has a share below `warning_share`, and the lower end of its interval reaches `small_share`. It is info",
            'and stands below all other findings, with `"small": true` in JSON. It makes no job unhealthy: exit codes, metrics,',
            "alerts and objectives leave it out.",
            "",
            "## Thresholds",
            "| threshold | value | source |",
            "|---|---|---|",
            *limits,
        ]
    )


def metrics() -> str:
    """Return the page of the catalogue of metrics."""
    rows = [f"| `{m.name}` | {m.type} | {m.unit or 'count'} | {', '.join(m.labels)} | {m.help} |" for m in METRICS]
    return "\n".join(
        [
            "# Metrics",
            "The catalogue in `core/tachoscope_core/metrics/catalogue.py`. The agent serves all but "
            "`tachoscope_compute_share_ratio` and `tachoscope_bottleneck_ratio`, which need the whole job, "
            "and `tachoscope_watch_*`: [`tachoscope watch`](../guides/watch.md) serves those. Ledger states of a rank: "
            + ", ".join(f"`{state}`" for state in TRAINING_STATES)
            + ".",
            "",
            "| name | type | unit | labels | meaning |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def nvml_sources() -> str:
    """Return the table of what each GPU metric is read from."""
    values: dict[tuple[str, tuple[str, ...]], list[ValueSource]] = {}
    for source in SOURCES:
        values.setdefault(source.key, []).append(source)
    rows = []
    for (metric, labels), found in values.items():
        sources = "; else ".join(map(_nvml_source, found))
        conversions = "; else ".join(dict.fromkeys(_conversion(source.unit) for source in found))
        rows.append(f"| `{metric}` | {', '.join(labels)} | {sources} | {conversions} | {'15 s' if found[0].slow else '1 s'} |")
    return "\n".join(["| metric | labels | NVML, for GPUs since | conversion | read every |", "|---|---|---|---|---|", *rows])


def _nvml_source(source: ValueSource) -> str:
    if source.call:
        taken = f".{source.take}" if source.take else f"[{source.item}]" if source.item is not None else ""
        arguments = ", ".join(map(str, source.arguments))
        name = f"`{source.call}({arguments}){taken}`" + (f" & {source.bit:#x}" if source.bit else "")
    else:
        name = f"field {source.field}" if source.field else f"GPM {source.gpm}"
        name += ", all links" if source.scope == ALL_LINKS else ""
    return f"{name} ({source.since})"


def _conversion(unit: str) -> str:
    times, over = UNITS[unit]
    return f"{unit}{f' × {times:,.0f}' if times != 1 else ''}{f' / {over:,.0f}' if over != 1 else ''}"


def dcgm_fields() -> str:
    """Return the table of what each field of a dcgm-exporter is read as."""
    return "\n".join(
        [
            "| field of DCGM | type, unit | metric | labels | of a MIG instance's line |",
            "|---|---|---|---|---|",
            *map(_dcgm_field, FIELDS),
        ]
    )


def _dcgm_field(field: Field) -> str:
    names = ", ".join(f"`{name}`" for name in (field.field, *field.also))
    labels = "a bit each" if field.bits else " + ".join(", ".join(each) for each in field.series)
    of = "given only" if field.sum else "its own" if field.of == "instance" else "the whole GPU's"
    return f"| {names} | {DCGM_BY_NAME[field.field].type}, {DCGM_UNITS[field.field]} | `{field.metric}` | {labels} | {of} |"


def health_rules() -> str:
    """Return the table of when a GPU is not healthy."""
    rows = []
    for name, rule in health_thresholds().rules.items():
        lasting = f", for {rule.for_seconds:g} s" if rule.for_seconds else ""
        threshold = f"{rule.threshold:g} {rule.unit}" if rule.threshold is not None else f"its own most ({rule.unit})"
        limit = f"{rule.comparison} {threshold}".strip() + lasting
        rows.append(f"| `{name}` | {limit} | {rule.severity} | `{rule.action}` | {rule.source} |")
    rows += [f"| {row} |" for row in _other_reasons()]
    return "\n".join(["| reason | when | state | action | source |", "|---|---|---|---|---|", *rows])


def _other_reasons() -> list[str]:
    """Return the rows of reasons that compare nothing with a threshold of the table."""
    limits = health_thresholds()
    young = f"{limits.start_seconds:g} s since the agent's start"
    silent = f"unknown, from {limits.silent_seconds:g} s unhealthy"
    rows = [
        "`lost` | the driver says so, or lists it no longer | unhealthy | `reboot_node` | nvml.h (NVML_ERROR_GPU_IS_LOST)",
        f"`no_answer` | a call to the driver does not return | {silent} | `none`, then `reboot_node` | ours",
        f"`driver_error` | the driver answers with an error or does not start | {silent} | `none`, then `drain_node` | ours",
        f"`stale` | it has not been read for {limits.stale_seconds:g} s | unknown | `drain_node` | ours",
        f"`not_measured` | nothing was measured that could tell, or read for less than {young} | unknown | `none` | ours",
        (
            f"`gpus_missing` (of the node) | fewer than expected (unknown for {young} or while the driver starts) | unhealthy | "
            "`inspect_hardware`; no driver to load: `check_configuration`; it does not start: `drain_node` | ours"
        ),
        (
            f"`xid_<code>` | in the last {limits.xid_seconds / 3600:g} h | by the catalogue; for a code that it lacks degraded | "
            "by the catalogue, else `inspect_hardware` | the catalogue"
        ),
    ]
    rows += [
        f"`recovery_action` | the driver advises ({number}): {advice.says} | {advice.severity} | `{advice.action}` | "
        "https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGpuRecoveryAction_t)"
        for number, advice in limits.recovery_actions.items()
        if advice.severity != "none"
    ]
    return rows


def checkpoint_intervals() -> str:
    """Return the table of what each interval costs, of a save that blocks and of one in the background."""
    day, ways = 86_400.0, (SaveCost(30.0, 0.0, 300.0), SaveCost(2.0, 28.0, 300.0))
    best = [best_interval(way, day) for way in ways]
    rows = []
    for interval in sorted({60.0, 300.0, 900.0, 3600.0, 7200.0, 14_400.0, 28_800.0, *best}):
        cells = [f"{1 - useful_ratio(way, interval, day):.1%} | {in_words(lost_at_failure(way, interval, day))}" for way in ways]
        note = " (optimum, blocking)" if interval == best[0] else " (optimum, background)" if interval == best[1] else ""
        rows.append(f"| {in_words(interval)}{note} | {' | '.join(cells)} |")
    head = "| interval | blocking: lost | a failure undoes | in the background: lost | a failure undoes |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def preemptible_policy() -> str:
    """Return the table of how often to save on machines that live a day, if a save fits into the notice and if not."""
    ways = ((SaveCost(2.0, 10.0, 300.0), True), (SaveCost(30.0, 0.0, 300.0), False))
    rows = []
    for hosts in (1, 8, 64, 256):
        preemption = Preemption(DAY / (0.15 * hosts), notice_seconds=30.0, life_seconds=DAY)
        found = [expected(way, 30 * DAY / hosts, preemption, fits=fits) for way, fits in ways]
        cells = [f"{in_words(interval)} | {useful:.1%}" for _, interval, useful in found]
        rows.append(f"| {hosts} | {in_words(preemption.between_seconds)} | {' | '.join(cells)} |")
    head = "| machines | preempted every | fits: save every | goodput | does not: save every | goodput |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def server_table() -> str:
    """Return the table of what each make of inference server says."""
    makes = [catalogue(server) for server in SERVERS]
    rows = [f"| `{name}` | {' | '.join(_said(name, make.signals.get(name)) for make in makes)} |" for name in SIGNALS]
    ends = [sorted({way for one in make.outcomes for way in (*one.values.values(), one.outcome) if way}) for make in makes]
    rows.append(f"| how requests ended | {' | '.join(', '.join(f'`{way}`' for way in end) for end in ends)} |")
    head = f"| signal | {' | '.join(make.title for make in makes)} |"
    return "\n".join([head, f"|---|{'---|' * len(makes)}", *rows])


def _said(name: str, signal: Signal | None) -> str:
    if signal is None:
        return ""
    return "mean" if name in HISTOGRAMS and signal.sum else "yes"


def price_table() -> str:
    """Return the table of prices that comes with the package."""
    rows = [
        f"| {price.name} | {price.per_hour:g} {price.currency} | {price.provider} | {price.date} | {price.source} |"
        for price in shipped_prices()
    ]
    return "\n".join(["| accelerator | an hour | whose price | on | source |", "|---|---|---|---|---|", *rows])


def commands() -> str:
    """Return the page of every command's own help."""
    named = [[], *_words(typer.main.get_command(app))]
    # One process for all: it takes longer to begin one than to print a help.
    done = subprocess.run(
        [sys.executable, "-c", _HELPS, json.dumps(named)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"},
    )
    parts = ["# Commands", "How they end, and what they print for programs: [programs](programs.md)."]
    for words, said in zip(named, done.stdout.split("\f")[1:], strict=True):
        text = "\n".join(line.rstrip() for line in said.strip("\n").splitlines())
        parts += ["", f"## tachoscope {' '.join(words)}".rstrip(), "```", text, "```"]
    return "\n".join(parts)


_HELPS = """
import json, sys
from tachoscope_cli.app import call
for words in json.loads(sys.argv[1]):
    print(end="\\f")
    call([*words, "--help"])
"""


def _words(group: typer.core.TyperGroup, *above: str) -> Iterator[list[str]]:
    """Yield what to type for each command, in the order of the help."""
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from _words(command, *above, name)
        else:
            yield [*above, name]


def exit_code_table() -> str:
    """Return the table of exit codes: what each means, and what of which command."""
    rows = []
    for code, meaning in MEANINGS.items():
        of = "<br>".join(f"`{command}`: {what}" for command, what in OF_COMMANDS.get(code, {}).items())
        rows.append(f"| {code} | {meaning} | {of} |")
    return "\n".join(["| code | meaning | of which commands, and when |", "|---|---|---|", *rows])


def answer_tables() -> str:
    """Return a table of keys for each record that commands print with `--format json`."""
    parts = []
    for words, record in ANSWERS.items():
        schema = msgspec.json.schema(record)
        parts += ["", f"### tachoscope {words}", "| key | type | meaning |", "|---|---|---|"]
        parts += _keys(schema["$defs"], record.__name__, "")
    return "\n".join(parts[1:])


_TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "array": "list",
    "object": "object",
}


def _keys(records: dict[str, Any], name: str, above: str) -> Iterator[str]:
    for key, of in records[name]["properties"].items():
        inner = of.get("items", {}).get("$ref", "").rpartition("/")[2]
        means = of.get("description") or records[inner]["description"]
        yield f"| `{above}{key}` | {_type(of)} | {means} |"
        if inner:
            yield from _keys(records, inner, f"{above}{key}[].")


def _type(of: dict[str, Any]) -> str:
    if "anyOf" in of:
        return " or ".join(map(_type, of["anyOf"]))
    return " or ".join(f"`{value}`" for value in of["enum"]) if "enum" in of else _TYPES[of["type"]]


def _with_section(page: str, name: str, table: str) -> str:
    """Return a page with the table between the markers of its name."""
    begin, end = f"<!-- {name} begin: made by tools/generate.py -->", f"<!-- {name} end -->"
    head, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"the page has no place for {name}: add the lines {begin} and {end}")
    return f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def main() -> int:
    """Write or check the pages; return the exit code."""
    stale = []
    for name, make in (("reference/bottlenecks", bottlenecks), ("reference/metrics", metrics), ("reference/commands", commands)):
        path, text = HERE / f"{name}.md", HEAD + make() + "\n"
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv:
            path.write_text(text)
    stale += alert_files(write="--check" not in sys.argv)
    stale += alert_runbooks(write="--check" not in sys.argv)
    stale += dashboard_files(write="--check" not in sys.argv)
    stale += llms_file(write="--check" not in sys.argv)
    sections = (
        ("reference/objectives", "detection_times", detection_times),
        ("reference/gpus", "nvml_sources", nvml_sources),
        ("reference/gpus", "dcgm_fields", dcgm_fields),
        ("reference/gpus", "health_rules", health_rules),
        ("guides/checkpoints", "checkpoint_intervals", checkpoint_intervals),
        ("guides/prices", "price_table", price_table),
        ("reference/programs", "exit_codes", exit_code_table),
        ("reference/programs", "answers", answer_tables),
        ("guides/servers", "servers", server_table),
        ("reference/objectives", "objectives", objective_table),
        ("../runbooks/procedure-checkpoint-policy", "preemptible_policy", preemptible_policy),
    )
    for name, section, make in sections:
        path = HERE / f"{name}.md"
        text = _with_section(path.read_text(), section, make())
        if path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        sys.stderr.write(f"not current: {', '.join(stale)} (make generate)\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
