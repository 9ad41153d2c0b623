"""A small training that uses all of torch and of tachoscope that the probe watches, and a fault in one line of the probe.

    python faulty_training.py some 8 22      trains once for each of 8 lines of the probe that the training runs through, drawn with
                                             the seed 22, in a forked process in which that line raises
    python faulty_training.py all            does so for all lines, which takes an hour

What is compared is what the job may notice: its standard output with a checksum of the model's weights, and its exit code. Left out
are lines in which nothing can fail, such as `try:` or `return self`, the line `with QUIETLY:`, and functions that only call the
job's own (a parameter `original`).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import os
import random
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import tachoscope
from tachoscope import start as auto
from tachoscope.process.import_hook import after_import

PROBE = str(Path(tachoscope.__file__).parent)
NOT_RUN_IN_A_CALL = ("/guard.py", "/importhook.py")
CALLERS = {"original", "inherited"}
"""Names by which a function of the probe has the job's own function: it calls that one whatever happens."""
CALLING = {"_within_save", "_within_load", "_save_in_background", "call", "discover", "_discovering", "quietly"}


def train() -> str:
    """Train for a few steps and return what the job can see of it."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.rand(24, 8), torch.rand(24, 1)), batch_size=4)
    path = os.path.join(tempfile.gettempdir(), f"faulty-{os.getpid()}.pt")
    for _ in range(2):
        for inputs, target in loader:
            torch.nn.functional.mse_loss(model(inputs), target).backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for inputs, _ in loader:
                model(inputs)
        model.train()
        torch.save(model.state_dict(), path)
    torch.load(path)
    os.replace(path, f"{path}.new")
    os.unlink(f"{path}.new")
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> Any:
        lbfgs.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        return loss

    lbfgs.step(closure)
    answers = said(model)
    for number in range(2):
        with tachoscope.phase("data_wait"):
            inputs = torch.full((4, 8), 0.1 * number)
        model(inputs).sum().backward()
        optimizer.step()
        tachoscope.step(samples=4, tokens=8)
    weights = sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())
    return f"{weights!r} {answers}"


def said(model: torch.nn.Module) -> list[object]:
    """Use each public call once, and return their answers."""
    tachoscope.integrity(model, every=2)
    tachoscope.describe(hyperparameters={"lr": 0.1}, data_snapshot="1", image="i", parents=["/nowhere"], layout={"dp": 1})
    tachoscope.saved(reference="/nowhere/own", seconds=0.1, size_bytes=3)
    tachoscope.restored(step=1, reference="/nowhere/own", seconds=0.1)
    tachoscope.parameters_read(1)
    tachoscope.parameters_applied(2, bound=3)
    with tachoscope.shard("/nowhere/shard"):
        pass
    with contextlib.suppress(OSError), tachoscope.shard("/nowhere/shard"):
        raise OSError("broken")
    tachoscope.checkpoint_due(1, every=2)
    return [tachoscope.preempted(), tachoscope.quarantined(), tachoscope.without_quarantined(["a"])]


def run(store: str) -> None:
    """Train under the probe as `tachoscope run` and `tachoscope.watch` have it, and print what the job sees."""
    after_import("torch", lambda module: auto.start(torch=module))
    with tachoscope.watch(job="faulty", store=store):
        seen = train()
    print(seen, flush=True)


class InjectedFaultError(RuntimeError):
    """What a line of the probe raises. It is not a class of the job's: its module says so."""


InjectedFaultError.__module__ = "tachoscope"


class Tracer:
    """Follows the lines of the probe; raises once at the wanted one."""

    def __init__(self, wanted: tuple[str, int] | None) -> None:
        self.wanted = wanted
        self.seen: dict[tuple[str, int], None] = {}

    def start(self) -> None:
        threading.settrace(self.called)
        sys.settrace(self.called)

    def called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        del frame  # else a handler of signals would look like this
        return self.line if counts(code) else None

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        place = frame.f_code.co_filename[len(PROBE) :], frame.f_lineno
        del frame
        if event == "line":
            if place == self.wanted:
                self.wanted = None
                raise InjectedFaultError(f"{place[0]}:{place[1]}")
            self.seen[place] = None
        return self.line


def counts(code: CodeType) -> bool:
    """Return whether a function is the probe's own code, and not what calls the job's functions."""
    if not code.co_filename.startswith(PROBE) or code.co_filename.endswith(NOT_RUN_IN_A_CALL) or code.co_name in CALLING:
        return False
    return code.co_name != "<module>" and not CALLERS & {*code.co_freevars, *code.co_varnames}


CAN_RAISE = (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.Import, ast.ImportFrom, ast.For)
OF_THE_JOBS_VALUES = {"isinstance", "list"}
"""Builtins that a public call applies to what the job gave: what they raise is the job's mistake."""


@functools.cache
def raising_lines(name: str) -> frozenset[int]:
    """Return the lines of a file of the probe that hold something that can fail; `return self` and `entered = False` cannot."""
    tree = ast.parse(Path(PROBE + name).read_text())
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, CAN_RAISE) and not _cannot_raise(node))


def _cannot_raise(node: ast.AST) -> bool:
    union = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)  # of types, in an annotation
    return union or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OF_THE_JOBS_VALUES)


def raises_nothing(place: tuple[str, int]) -> bool:
    """Return whether a line cannot fail, or only begins a block in which faults are swallowed."""
    text = Path(PROBE + place[0]).read_text().splitlines()[place[1] - 1].strip()
    return place[1] not in raising_lines(place[0]) or text.startswith(("with QUIETLY", "with guard.QUIETLY", "@"))


def in_child(wanted: tuple[str, int] | None, folder: str) -> tuple[int, str, str, list[tuple[str, int]]]:
    """Train in a forked process; return its exit code, output, messages, and the lines that it ran through."""
    files = [os.path.join(folder, name) for name in ("out", "err", "lines")]
    child = os.fork()
    if child == 0:
        for number, name in ((1, files[0]), (2, files[1])):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
        os.environ["TACHOSCOPE_SPOOL"] = os.path.join(folder, "spool")
        tracer, code = Tracer(wanted), 1
        try:
            tracer.start()
            run(os.path.join(folder, "store"))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.settrace(None)
            Path(files[2]).write_text(json.dumps(list(tracer.seen)))
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    lines = [(name, number) for name, number in json.loads(Path(files[2]).read_text())]
    return os.waitstatus_to_exitcode(status), Path(files[0]).read_text(), Path(files[1]).read_text(), lines


def main() -> None:
    """See the module."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        code, usual, messages, lines = in_child(None, folder)
        assert (code, messages) == (0, ""), messages
        wanted = [place for place in lines if not raises_nothing(place)]
        assert len(wanted) > 1000, f"the training runs through only {len(wanted)} lines"
        if sys.argv[1] == "some":
            wanted = random.Random(int(sys.argv[3])).sample(wanted, int(sys.argv[2]))
        for name, number in wanted:
            code, output, messages, _ = in_child((name, number), folder)
            if (code, output) != (0, usual):
                print(
                    json.dumps({"line": f"{name}:{number}", "exit_code": code, "output": output, "messages": messages}), flush=True
                )


if __name__ == "__main__":
    main()
