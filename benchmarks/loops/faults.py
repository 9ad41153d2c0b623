"""The faults, as code that is planted into a copy of a script, and the class that each must be named."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from benchmarks.loops.loop import COLLATE, Loop, Site
from benchmarks.loops.plant import Edit

SHARE = 0.4
"""How long a fault is, as a share of the clean step."""
EVERY = 5
"""Checkpoints and evaluations come once in as many steps."""
CHECKPOINT_MEGABYTES = 40
MEGABYTES_PER_SECOND = 600
"""About what `torch.save` and `fsync` write here. A checkpoint is so large that it takes the share, or as above."""

TOKENIZE = """
def tokenize(count):
    words = {}
    for number in range(count):
        word = chr(97 + number % 26) + str(number % 977)
        words[word] = words.get(word, 0) + 1
    return words
"""


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        name: as in the table; `clean` is none.
        classes: any of these is exactly right; empty: there must be no warning.
        family: classes that begin so are nearly right.
        ranks: the ranks that have it, None: all.
    """

    name: str
    classes: tuple[str, ...] = ()
    family: str = ""
    ranks: tuple[int, ...] | None = None


CLEAN = Fault("clean")
ITEM = Fault("item")
STALL_CLASSES = ("host_pause",)
FAULTS: tuple[Fault, ...] = (
    CLEAN,
    Fault("slow_input", ("input_workers", "input_fetch"), "input_"),
    Fault("slow_input_rank_1", ("input_straggler",), "input_", ranks=(1,)),
    Fault("tokenizer", ("input_preprocess",), "input_"),
    Fault("stall_before_backward", STALL_CLASSES, "host_"),
    Fault("stall_before_optimizer", STALL_CLASSES, "host_"),
    Fault("evaluation", STALL_CLASSES, "host_"),
    Fault("evaluation_without_eval", STALL_CLASSES, "host_"),
    Fault("checkpoint", ("checkpoint_stall",), "checkpoint_", ranks=(0,)),
    ITEM,
)


def faults_of(loop: Loop) -> list[Fault]:
    """Return the faults that this loop has a place for."""
    has_input = loop.get_batch is not None or loop.collate is not None
    possible = {
        "slow_input": has_input,
        "slow_input_rank_1": has_input and loop.processes == 2,
        "tokenizer": has_input,
        "stall_before_backward": loop.before_backward is not None,
        "stall_before_optimizer": loop.before_optimizer is not None,
        "evaluation": bool(loop.evaluation),
        "evaluation_without_eval": bool(loop.evaluation),
    }
    return [fault for fault in FAULTS if possible.get(fault.name, True)]


def edits_of(loop: Loop, fault: Fault, step_seconds: float, words_per_second: float) -> list[Edit]:
    """Return all edits of a run: what it takes to run here and, but for the clean run, the fault with its measuring."""
    if fault == CLEAN:
        return list(loop.edits)
    planted = _planted(loop, fault, step_seconds, words_per_second)
    return [*loop.edits, *_with_step(loop, planted), Edit(loop.step.file, "", "import planted", "top")]


def calibration_edits(loop: Loop) -> list[Edit]:
    """Return the edits of a run that only counts its steps."""
    return [*loop.edits, loop.step.edit("planted.step()"), Edit(loop.step.file, "", "import planted", "top")]


def _with_step(loop: Loop, planted: list[Edit]) -> list[Edit]:
    """Put the end of the step behind a fault of the same line, so that the fault is within the step."""
    step = loop.step.edit("planted.step()")
    return [step, *planted] if loop.step.place == "after" else [*planted, step]


def _planted(loop: Loop, fault: Fault, step_seconds: float, words_per_second: float) -> list[Edit]:
    seconds = SHARE * step_seconds
    if fault.name in ("slow_input", "slow_input_rank_1"):
        slow = f"time.sleep({seconds * loop.input_scale / loop.batches:.4f})"
        return _input(loop, slow, one_rank=fault.ranks is not None)
    if fault.name == "tokenizer":
        words = int(seconds * loop.input_scale / loop.batches * words_per_second)
        return [*_input(loop, f"tokenize({words})"), Edit(loop.main_file, "", TOKENIZE, "top", marked=True)]
    if fault.name.startswith("stall"):
        site = loop.before_backward if fault.name == "stall_before_backward" else loop.before_optimizer
        assert site is not None
        times = loop.batches if fault.name == "stall_before_backward" else 1
        return [_imports(site.file), site.edit(_measured(f"time.sleep({seconds / times:.4f})"), marked=True)]
    if fault == ITEM:
        assert loop.before_backward is not None
        return [loop.before_backward.edit(_measured(f"{loop.loss}.item()"), marked=True)]
    if fault.name == "checkpoint":
        return [_imports(loop.step.file), loop.step.edit(_checkpoint(loop, EVERY * seconds), marked=True)]
    return _evaluation(loop, with_eval=fault.name == "evaluation")


def _input(loop: Loop, statement: str, *, one_rank: bool = False) -> list[Edit]:
    head = None if one_rank else loop.get_batch_head  # of one rank, only what it has more of than the others is a loss
    text = statement if head else _measured(statement)
    if one_rank:
        text = "if planted.RANK == 1:\n" + textwrap.indent(text, "    ")
    if loop.get_batch is not None:
        timed = [head.edit("@planted.timed")] if head else []
        return [_imports(loop.main_file), *timed, loop.get_batch.edit(text, marked=True)]
    assert loop.collate is not None
    site, line = loop.collate
    collate = COLLATE.replace("{fault}", text.replace("\n", "\n    "))
    edits = [site.edit(line), Edit(site.file, "", collate, "top", marked=True), _imports(site.file)]
    return [*edits, loop.body.edit("planted.body()")] if loop.body else edits


def _evaluation(loop: Loop, *, with_eval: bool) -> list[Edit]:
    once = loop.evaluation
    if not loop.own_eval:
        once = f"with torch.no_grad():\n    for _ in range({loop.evaluated_batches}):\n        {once}"
        if with_eval:
            switches = [[f"{model}.{mode}()" for model in loop.models] for mode in ("eval", "train")]
            once = "\n".join([*switches[0], once, *switches[1]])
    edits = [loop.step.edit(_each(once), marked=True)]
    return edits if with_eval else [*edits, *(site.edit("pass") for site in loop.own_eval)]


def _checkpoint(loop: Loop, seconds: float) -> str:
    megabytes = max(CHECKPOINT_MEGABYTES, int(seconds * MEGABYTES_PER_SECOND))
    save = (
        'with open("planted_checkpoint.pt", "wb") as planted_file:\n'
        f'    torch.save({{"model": {loop.state}, "ballast": planted.ballast({megabytes})}}, planted_file)\n'
        "    planted_file.flush()\n"
        "    os.fsync(planted_file.fileno())"
    )
    return _each(save, and_only=" and planted.RANK == 0")


def _each(text: str, and_only: str = "") -> str:
    return f"if planted.turn({EVERY}){and_only}:\n" + textwrap.indent(_measured(text), "    ")


def _measured(text: str) -> str:
    return f"planted.begin()\n{text}\nplanted.end()"


def _imports(file: str) -> Edit:
    return Edit(file, "", "import os\nimport time\nimport torch", "top")


__all__ = ["CLEAN", "FAULTS", "ITEM", "Fault", "Site", "calibration_edits", "edits_of", "faults_of"]
