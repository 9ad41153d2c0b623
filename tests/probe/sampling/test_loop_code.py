"""What the statements of a training loop are for, told from its source."""

from __future__ import annotations

import linecache
import textwrap
from types import CodeType

from tachoscope.sampling.loop_code import LoopCode
from trying import each

FETCHED_AFTER_THE_MODEL = """
    x, y = get_batch()                    # first
    while True:
        lr = schedule(step)               # input
        if step % 100 == 0:               # input
            losses = estimate()           # input
        for micro in range(4):
            logits, loss = model(x, y)    # result MODEL
            loss = loss / 4               # result
            x, y = get_batch()            # input
            time.sleep(0.01)              # other
            loss.backward()               # result BACKWARD
        log(loss.item())                  # result
        optimizer.zero_grad()             # other
"""
DELAYED_BEFORE_THE_MODEL = """
    for step in range(steps):             # input
        report(step)                      # input
        x = get_batch()                   # input
        if step % 10 == 0:                # input
            time.sleep(1)                 # input
        loss = model(x).mean()            # result MODEL
        time.sleep(1)                     # other
        loss.backward()                   # result BACKWARD
        optimizer.step()                  # other
"""
TOKENS_OF_A_LIST = """
    for document in documents:            # input
        tokens = []                       # input
        for word in document.split():     # input
            tokens.append(ids[word])      # input
        batch = torch.tensor(tokens)      # input
        counts.append(len(tokens))        # input
        out = self.model(batch)           # result MODEL
        loss = criterion(out, batch)      # result
        loss.backward()                   # result BACKWARD
"""
STATE_THAT_GOES_ON = """
    for i in range(n):                    # input
        data, targets = get_batch(i)      # input
        hidden = repackage(hidden)        # result
        output, hidden = model(data, hidden)  # result MODEL
        criterion(output, targets).backward() # result BACKWARD
        for p in parameters:              # other
            p.data.add_(p.grad)           # other
"""


WITHOUT_A_MODEL = """
    for x, y in rows:                     # result
        hidden = (x @ w).relu()           # result
        loss = (hidden @ v - y).mean()    # result
        seen.append(float(y))             # other
        loss.backward()                   # result BACKWARD
        w.data.sub_(w.grad)               # other
"""


def lines(source: str) -> tuple[CodeType, dict[str, list[int]], dict[int, str]]:
    """Return the code of a loop, its lines with MODEL and BACKWARD, and the roles that its comments name."""
    text = "def train():\n" + source.lstrip("\n")
    name = f"<loop {hash(text)}>"
    rows = text.splitlines(keepends=True)
    linecache.cache[name] = (len(text), None, rows, name)
    namespace: dict[str, object] = {}
    exec(compile(text, name, "exec"), namespace)
    marks = {mark: [n for n, row in enumerate(rows, 1) if row.rstrip().endswith(mark)] for mark in ("MODEL", "BACKWARD")}
    roles = {n: row.split("#")[1].split()[0] for n, row in enumerate(rows, 1) if "#" in row and "# first" not in row}
    return namespace["train"].__code__, marks, roles  # type: ignore[attr-defined]


@each("source", [FETCHED_AFTER_THE_MODEL, DELAYED_BEFORE_THE_MODEL, TOKENS_OF_A_LIST, STATE_THAT_GOES_ON, WITHOUT_A_MODEL])
def test_each_statement_of_a_loop_is_input_work_on_a_result_or_neither(source: str) -> None:
    code, marks, expected = lines(source)
    loop = LoopCode()
    loop.add_lines(models=[[(code, line)] for line in marks["MODEL"]], backward=[(code, marks["BACKWARD"][0])])

    assert {line: loop.role([(code, line)]) for line in expected} == expected


def test_what_is_called_by_a_statement_is_for_what_the_statement_is_for() -> None:
    code, marks, roles = lines(FETCHED_AFTER_THE_MODEL)
    loop = LoopCode()
    loop.add_lines(models=[[(code, marks["MODEL"][0])]], backward=[(code, marks["BACKWARD"][0])])
    tokenize = textwrap.dedent.__code__  # any other function
    fetch = next(line for line, role in roles.items() if role == "input")

    assert loop.role([(tokenize, 7), (code, fetch)]) == "input"
    assert loop.role([(tokenize, 7)]) == ""


def test_a_function_that_calls_the_model_is_split_at_its_own_statements() -> None:
    inner, marks, _ = lines(
        """
        batch = prepare(text)
        out = model(batch)  # MODEL
        return out.sum()
        """
    )
    loop = LoopCode()
    loop.add_lines(models=[[(inner, marks["MODEL"][0])]], backward=())

    assert [loop.role([(inner, line)]) for line in (2, 3, 4)] == ["input", "result", "result"]


def test_without_a_source_nothing_is_known() -> None:
    code = compile("x = model(y)", "<nowhere>", "exec")
    loop = LoopCode()
    loop.add_lines(models=[[(code, 1)]], backward=())

    assert loop.role([(code, 1)]) == ""


def test_of_statements_on_one_line_nobody_knows_which_is_at_work() -> None:
    code, marks, _ = lines(
        """
        x = get_batch(); out = model(x)  # MODEL
        y = get_batch()
        out = model(y)  # MODEL
        """
    )
    loop = LoopCode()
    loop.add_lines(models=[[(code, line)] for line in marks["MODEL"]], backward=())

    assert [loop.role([(code, line)]) for line in (2, 3, 4)] == ["", "input", "result"]
