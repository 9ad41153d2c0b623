"""`tachoscope nodes`: the life cycle of a cluster's nodes: what is suspect, out, tested and returned, and manual overrides."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tachoscope_cli.common.answers import NodeAudit, NodeEvidence, NodeShown, NodesShown
from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, needs_analysis, print_notice, store_url
from tachoscope_cli.common.output import console, write_json
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.storage.store import Store, absolute_url
from tachoscope_show.text.safe_text import safe
from tachoscope_watch.nodes.evidence import node_names
from tachoscope_watch.nodes.lifecycle import KEPT_SECONDS
from tachoscope_watch.nodes.states import CloseBreaker, Cordon, Fleet, Judged, Node, Request, Return, Verdict
from tachoscope_watch.nodes.stored import AuditLine, Lifecycle

nodes_app = typer.Typer(no_args_is_help=True, help="Show and override which nodes are suspect, out, tested and returned.")
_NODE = typer.Argument(metavar="NODE", help="The node.")
_DRY_RUN = typer.Option("--dry-run", help="Only say what would be asked for.")
_LATE_SECONDS = 3 * KEPT_SECONDS
_MOST_SECONDS = 6 * 3600.0


@nodes_app.command("ls", epilog="Examples: `tachoscope nodes ls`, `tachoscope nodes ls --format json`")
def nodes_ls(store: StoreOption = None, format_: JsonOption = TEXT) -> None:
    """List the nodes that are not healthy as far as is known, and why. Of all others nothing speaks against them."""
    fleet = _fleet(_opened(store))
    found = [node for node in fleet.nodes.values() if node.state != "healthy"]
    if format_.value == "json":
        write_json(_shown(fleet, found, []))
        return
    if time.time() - fleet.time > _LATE_SECONDS:
        print_notice(f"no watch has looked at the nodes since {_when(fleet.time)}: how they are now is not known")
    if fleet.breaker_opened_at:
        print_notice("the breaker is open, no node is taken out; see why with `tachoscope nodes audit`, then close-breaker")
    if not found:
        print_notice(f"no node is suspect or out; last look: {_when(fleet.time)}")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for header in ("node", "state", "since", "why"):
        table.add_column(header, overflow="fold")
    for node in sorted(found, key=lambda node: node.node):
        table.add_row(safe(node.node), node.state, _when(node.since), safe(node.held or node.why))
    console().print(table)


@nodes_app.command("explain", epilog="Examples: `tachoscope nodes explain node17`")
def nodes_explain(node: Annotated[str, _NODE], store: StoreOption = None, format_: JsonOption = TEXT) -> None:
    """Show one node: its state, the evidence that counts, its test, and what was decided and done."""
    kept = _opened(store)
    fleet = _fleet(kept)
    name = _name(node, fleet)
    found = fleet.nodes.get(name, Node(name))
    lines = kept.audit_lines(node=name)
    if format_.value == "json":
        write_json(_shown(fleet, [found], lines))
        return
    out = console()
    out.print(f"{safe(name)}: {found.state}" + (f": {safe(found.why)}" if found.why else ""), highlight=False, soft_wrap=True)
    if found.held:
        out.print(f"  not taken out: {safe(found.held)}", highlight=False, soft_wrap=True)
    for one in found.evidence:
        out.print(f"  {_when(one.time)} {one.kind} {safe(one.job)} {safe(one.detail)}".rstrip(), highlight=False, soft_wrap=True)
    if found.test:
        out.print(f"  its test was asked for at {_when(found.test_asked_at)}", highlight=False)
    _print_lines(lines)


@nodes_app.command("audit", epilog="Examples: `tachoscope nodes audit --last 100`")
def nodes_audit(
    store: StoreOption = None, last: Annotated[int, typer.Option(min=1, help="Number of lines.")] = 20, format_: JsonOption = TEXT
) -> None:
    """Show what was decided and done, with the command that undoes it."""
    kept = _opened(store)
    lines = kept.audit_lines(most=last)
    if format_.value == "json":
        write_json(_shown(_fleet(kept), [], lines))
    else:
        _print_lines(lines)


@nodes_app.command("cordon", epilog="Examples: `tachoscope nodes cordon node17 --why fans`")
def nodes_cordon(
    node: Annotated[str, _NODE],
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    store: StoreOption = None,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Take a node out until `tachoscope nodes return`, whatever its tests say. The watch does it at its next look."""
    kept = _opened(store)
    _ask(kept, Cordon(_name(node, _fleet(kept)), time.time(), _who(), why), f"{node} is to be taken out", dry_run=dry_run)


@nodes_app.command("return", epilog="Examples: `tachoscope nodes return node17`")
def nodes_return(node: Annotated[str, _NODE], store: StoreOption = None, dry_run: Annotated[bool, _DRY_RUN] = False) -> None:
    """Return a node to service without a test; earlier evidence counts no more. The watch does it at its next look."""
    kept = _opened(store)
    _ask(kept, Return(_name(node, _fleet(kept)), time.time(), _who()), f"{node} is to be returned", dry_run=dry_run)


@nodes_app.command("close-breaker", epilog="Examples: `tachoscope nodes close-breaker`")
def nodes_close_breaker(store: StoreOption = None, dry_run: Annotated[bool, _DRY_RUN] = False) -> None:
    """Close the breaker once it is known why so many nodes were suspect at once. Earlier evidence counts no more."""
    _ask(_opened(store), CloseBreaker(time.time(), _who()), "the breaker is to be closed", dry_run=dry_run)


@nodes_app.command(
    "test",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Examples: `tachoscope nodes test --store /shared/tachoscope -- --quick --storage /scratch`",
)
def nodes_test(
    context: typer.Context,
    store: StoreOption = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Name of this node. Default: its host name.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether a test is asked for.")] = False,
) -> None:
    """Test this node if its life cycle asks for that, by `tachoscope preflight` with the arguments after `--`.

    To be run on each node every few minutes, as by Slurm's HealthCheckProgram. Exits with 0 also if the node is unfit: the watch
    decides.
    """
    kept = _opened(store)
    fleet = _fleet(kept)
    name = _name(node or socket.gethostname(), fleet)
    known = fleet.nodes.get(name, Node(name))
    done = kept.test(name)
    if known.state != "testing" or (done is not None and done.test == known.test):
        print_notice(f"no test of {name} is asked for")
        return
    if dry_run:
        print_notice(f"{name} would be tested")
        return
    verdict, why = _preflight(store_url(store), context.args)
    kept.write_test(Judged(name, known.test, time.time(), verdict, why))
    print_notice(f"{name} is {verdict}" + (f": {why}" if why else ""))


def _preflight(url: str, words: list[str]) -> tuple[Verdict, str]:
    """Return the verdict on this node; without a report it is not judged."""
    command = [sys.executable, "-m", "tachoscope_cli.main", "preflight", "--store", url, "--format", "json", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_MOST_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "not judged", f"the preflight did not end: {error}"[:300]
    try:
        report = json.loads(done.stdout)
        verdict = {"fit": "fit", "unfit": "unfit"}.get(report["verdict"], "not judged")
        why = "; ".join(host["why"] for host in report["hosts"] if host["why"])
    except (ValueError, KeyError, TypeError):
        said = done.stderr.strip().splitlines()
        return "not judged", f"exit code {done.returncode}: {said[-1] if said else 'it says nothing'}"[:300]
    agrees = {ExitCode.OK: "fit", ExitCode.FOUND: "unfit"}.get(done.returncode, "not judged") == verdict  # type: ignore[call-overload]
    return (verdict, why[:300]) if agrees else ("not judged", f"exit code {done.returncode} after the verdict {verdict}")  # type: ignore[return-value]


def _opened(store: str | None) -> Lifecycle:
    needs_analysis()
    url = absolute_url(store_url(store))
    if "://" not in url and not Path(url).is_dir():
        raise TachoscopeError(f"store {url} does not exist", fix="name the watch's store with --store")
    return Lifecycle(Store(url))


def _fleet(kept: Lifecycle) -> Fleet:
    fleet = kept.fleet()
    if fleet is None:
        raise TachoscopeError("no watch keeps the life cycle of nodes in this store", fix="tachoscope watch --nodes nodes.yaml")
    return fleet


def _name(node: str, fleet: Fleet) -> str:
    return node_names([node], fleet.nodes).get(node, node)


def _who() -> str:
    return f"{getpass.getuser()} on {os.uname().nodename}"


def _ask(kept: Lifecycle, request: Request, what: str, *, dry_run: bool) -> None:
    if dry_run:
        print_notice(f"{what}; nothing is asked for (--dry-run)")
        return
    kept.ask(request)
    print_notice(f"{what} at the watch's next look; next: tachoscope nodes ls")


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def _print_lines(lines: list[AuditLine]) -> None:
    if not lines:
        print_notice("nothing was decided yet")
    for line in lines:
        what = f"{line.before} -> {line.after}" if line.what == "state" else f"{line.what}: {line.outcome}"
        undo = f" [undo: {line.undo}]" if line.undo else ""
        text = f"{_when(line.time)} {line.node} {what}: {line.error or line.why}{undo}"
        console().print(safe(text), highlight=False, soft_wrap=True, markup=False)


def _shown(fleet: Fleet, nodes: list[Node], lines: list[AuditLine]) -> NodesShown:
    return NodesShown(
        looked_at=fleet.time,
        breaker_opened_at=fleet.breaker_opened_at or None,
        nodes=[
            NodeShown(
                node=node.node,
                state=node.state,
                since=node.since or None,
                why=node.why,
                held=node.held,
                evidence=[NodeEvidence(kind=one.kind, time=one.time, job=one.job, detail=one.detail) for one in node.evidence],
                cordoned_by=node.cordoned_by,
                test_asked_at=node.test_asked_at if node.test else None,
                failed_tests=node.failed_tests,
            )
            for node in sorted(nodes, key=lambda node: node.node)
        ],
        audit=[
            NodeAudit(
                time=line.time,
                node=line.node,
                what=line.what,
                before=line.before,
                after=line.after,
                outcome=line.outcome,
                why=line.error or line.why,
                undo=line.undo,
            )
            for line in lines
        ],
    )
