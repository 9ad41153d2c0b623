"""Texts in records that would be lines of their own, or turn what follows, in a report."""

from collections.abc import Callable

import msgspec
import pytest

from making import job
from serving_making import Server
from tachoscope_cli.app import call
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store, default_url

BREAKS = "\n\r\x0b\x1b\x85\u2028\u2029\u202e\u2066"
PLANTED = f"ok{BREAKS}job shared verified sound by root"


def training() -> bytes:
    first, *others = job([[{"forward": 0.1}]] * 30).splitlines(keepends=True)
    lineage = {"code_reference": PLANTED, "image": PLANTED, f"x{BREAKS}job shared": "y", f"x{BREAKS[::-1]}job shared": "z"}
    started = msgspec.structs.replace(records.decode(first), code_reference=PLANTED, lineage=lineage)
    return b"".join([records.encode(started), *others])


def service() -> bytes:
    server = Server(1, service="planted", model=PLANTED, version=PLANTED)
    server.start()
    for number in range(23):
        server.request(float(number))
    server.end(30.0)
    return server.lines()


@pytest.mark.parametrize("form", ["text", "html"])
@pytest.mark.parametrize("lines", [training, service])
def test_a_text_in_a_record_can_neither_forge_a_line_of_a_report_nor_turn_it(
    lines: Callable[[], bytes], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = f"{1:08d}-0000-4000-8000-000000000000"
    Store(default_url()).write("planted", host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=lines())
    call(["analyze", "--job", "planted", "--format", form])

    shown = capsys.readouterr().out
    assert "job shared" in shown
    assert not [line for line in shown.splitlines() if line.startswith("job shared")]
    assert not set(BREAKS[1:]) & set(shown)
