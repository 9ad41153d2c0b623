"""The words and pictures of a life: for the terminal and for the page."""

import io
import re
from datetime import date
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from life_making import T0, PlantedLife
from tachoscope_analyzers.data.prices import Price
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_core.report.job_life import CheckpointCosts
from tachoscope_core.report.report import Report, dump, load
from tachoscope_show.life import words as life_words
from tachoscope_show.report import html as render_html
from tachoscope_show.report import text as render_text
from tachoscope_show.text.units import duration, size


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    life = PlantedLife("resnet <50>")
    life.launcher(0.0, 100.0)
    for rank in range(2):
        life.process(rank, [1.0] * 30, start=1.0, begin=5.0, saves={10: "/ckpt/10"})
        life.gone(rank, 35.5, start=1.0)
        life.process(rank, [1.0] * 30, attempt=1, start=40.0, begin=50.0, restored=("/ckpt/10", 42.0, 3.0), left=82.0)
    day = date(2026, 3, 1)
    price = Price(name="rank", pattern="rank", per_hour=36.0, currency="EUR", provider="ours", date=day, source="the books")
    return analyze_life(life.load(tmp_path_factory.mktemp("life")), now=T0 + 1e6, prices=[price])


def text_of(report: Report) -> str:
    file = io.StringIO()
    render_text.render(report, Console(file=file, width=110, highlight=False, markup=False))
    return file.getvalue()


def test_the_terminal_shows_the_waterfall_with_hours_and_money(report: Report) -> None:
    text = text_of(report)

    assert "the whole life: 2 attempts, 2 ranks, 40 steps in 1 min 40 s" in text
    assert "allocated 3 min 20 s of rank time, says the launcher" in text
    assert "2.00 EUR (36 EUR an hour: ours, 2026-03-01: the books)" in text
    lost = next(line for line in text.splitlines() if line.startswith("L  lost_work"))
    assert re.split(r"\s{2,}", lost.strip())[2:] == ["20.5 %", "41.0 s", "0.41 EUR"]


def test_each_attempt_is_a_line_over_the_time_of_the_life(report: Report) -> None:
    lines = [line for line in text_of(report).splitlines() if re.match(r"\s+[01]  \S{44}  ", line)]
    pictures = [re.split(r"\s{2,}", line.strip())[1] for line in lines]

    assert len({len(picture) for picture in pictures}) == 1
    assert "steps 1 to 30; killed: rank 0 on node-0" in lines[0]
    assert "steps 11 to 40, 20 again; completed" in lines[1]
    # Start and steps, then the step that was under way; the second reads a checkpoint and does 20 steps again.
    assert re.fullmatch(r"I+█+L·+", pictures[0])
    assert re.fullmatch(r"·+I*R+I+L+█+\?*·+", pictures[1])


def test_the_page_holds_no_script_escapes_names_and_draws_every_span_once(report: Report) -> None:
    page = render_html.render(report)

    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "resnet &lt;50&gt;" in page and "resnet <50>" not in page
    drawings = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page)]
    assert report.life is not None
    assert len(drawings) == len(report.life.attempts)
    for drawing, attempt in zip(drawings, report.life.attempts, strict=True):
        assert len(drawing.findall("rect")) == len(attempt.spans)
        last = drawing.findall("rect")[-1]
        assert float(last.attrib["x"]) + float(last.attrib["width"]) <= 1000.01


def test_spans_of_an_attempt_follow_each_other_from_its_start_to_its_end(report: Report) -> None:
    assert report.life is not None
    for attempt in report.life.attempts:
        assert (attempt.spans[0].start, attempt.spans[-1].end) == pytest.approx((attempt.start, attempt.end))
        for before, after in pairwise(attempt.spans):
            assert before.end == pytest.approx(after.start)


def test_a_saved_report_of_a_life_reads_back_and_looks_the_same(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(dump(report))

    assert load(path) == report
    assert text_of(load(path)) == text_of(report)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (0.25, "250.0 ms"),
        (45.21, "45.2 s"),
        (59.97, "1 min"),
        (3599.9, "1 h"),
        (60.0, "1 min"),
        (133 * 60.0, "2 h 13 min"),
        (7200.0, "2 h"),
        (7199.9, "2 h"),
        (100_000.0, "1 d 4 h"),
    ],
)
def test_lengths_of_time_are_said_as_people_do(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_sizes_are_said_in_binary_units() -> None:
    assert [size(count) for count in (12, 2048, 3 * 2**30)] == ["12 B", "2.0 KiB", "3.0 GiB"]


def test_a_checkpoint_that_is_not_sound_is_named_once() -> None:
    faults = {"/ckpt/10": "/ckpt/10/__0_0.distcp: missing", "/ckpt/20.pt": "not sound"}

    lines = life_words.checkpoints(CheckpointCosts(saves=0, faults=faults))

    assert lines == ["NOT SOUND: /ckpt/10/__0_0.distcp: missing", "NOT SOUND: /ckpt/20.pt: not sound"]
