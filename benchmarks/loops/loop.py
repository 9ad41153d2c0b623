"""What the harness knows of a training loop: how it is started and at which lines faults are planted."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.loops.plant import Edit, Place

COLLATE = """
def planted_collate(samples):
    {fault}
    return torch.utils.data.default_collate(samples)
"""
"""The input of a loop with a DataLoader is made slow in its `collate_fn`: once a batch, in the process that makes the batch."""


@dataclass(frozen=True)
class Site:
    """A line of a script that code is planted at."""

    file: str
    anchor: str
    place: Place = "before"
    nth: int = 0
    deeper: bool = False

    def edit(self, text: str, *, marked: bool = False) -> Edit:
        """Return the edit that plants this text here."""
        return Edit(self.file, self.anchor, text, self.place, self.nth, self.deeper, marked)


@dataclass(frozen=True)
class Loop:
    """One training loop.

    Attributes:
        name: as in the table.
        folder: below the sources; `own` is the folder beside this file.
        command: what follows `python`; `torchrun` as the first word stands for the launcher with two processes.
        step: the end of an iteration.
        before_backward: between loss and backward, None: there is no such line.
        before_optimizer: between backward and the optimizer's step.
        get_batch: where the input is made by a function of the user, called `batches` times a step.
        get_batch_head: the `def` line of that function, where it takes time without a fault too: all of it is the truth then.
        collate: the line of the DataLoader, and how it reads with `collate_fn=planted_collate`.
        body: the first line of the loop's body: from the end of the step before to here, the loop waits for its input.
        input_scale: a fault in a loader's worker is hidden behind the step; it is made this many times longer.
        evaluation: statements of one evaluation, without switching the models.
        evaluated_batches: how often that is done in each evaluation, so that it takes more of a step than what is reported.
        models: what `eval()` and `train()` are called on.
        own_eval: the lines that call `eval()` and `train()` inside the loop's own evaluation, which `evaluation` calls.
        state: what a checkpoint holds.
        loss: the loss, for `.item()`.
        edits: what it takes to run here (no accelerator; sizes that no option sets).
        images: how many images the stand-in of torchvision has.
        data: what the harness writes first: `tokens` or `words`.
        needs: packages without which the loop is skipped.
        note: what a reader of the table should know.
    """

    name: str
    folder: str
    command: str
    step: Site
    before_backward: Site | None = None
    before_optimizer: Site | None = None
    get_batch: Site | None = None
    get_batch_head: Site | None = None
    batches: int = 1
    collate: tuple[Site, str] | None = None
    body: Site | None = None
    input_scale: float = 1.0
    evaluation: str = ""
    evaluated_batches: int = 6
    models: tuple[str, ...] = ("model",)
    own_eval: tuple[Site, ...] = ()
    state: str = "model.state_dict()"
    loss: str = "loss"
    edits: tuple[Edit, ...] = ()
    images: int = 0
    data: str = ""
    needs: tuple[str, ...] = ()
    note: str = ""

    @property
    def processes(self) -> int:
        """How many ranks it has."""
        return 2 if self.command.startswith("torchrun ") else 1

    @property
    def main_file(self) -> str:
        """The file that the input is planted in."""
        site = self.get_batch or (self.collate[0] if self.collate else self.step)
        return site.file
