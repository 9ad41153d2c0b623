"""What is said of the course of a run, and that nothing is where there is nothing to say."""

import re
from pathlib import Path

import msgspec
import pytest

from course_making import Extra, late, nothing, planted, slower
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_spool
from tachoscope_core.report.report import Report
from tachoscope_show.report.html import render
from tachoscope_show.report.trend_words import lines


def report(folder: Path, extra: Extra = nothing, **options: int) -> Report:
    return analyze(from_spool([planted(folder, extra, **options)]))


def test_a_change_says_from_when_how_much_what_and_who(tmp_path: Path) -> None:
    first, second, rank = lines(report(tmp_path, late(3, 120, 220)))

    assert re.fullmatch(
        r"from step 1[12]\d \(2023-11-14 22:13:\d\d UTC\) a step takes 11\d\.\d ms instead of 10\d\.\d ms \(\+1\d\.\d %\): "
        r"data_wait .* → 16\.\d ms; rank 3",
        first,
    )
    assert "(-1" in second
    assert re.fullmatch(r"rank 3 was late in 10\d of 298 steps: 1[12]\d to 2[12]\d by 1\d\.\d ms a step \(data_wait\)", rank)


def test_a_rank_that_was_late_throughout_is_told_once_in_its_finding(tmp_path: Path) -> None:
    found = report(tmp_path, late(3, 1, 300, 0.03, "forward"))

    assert [finding.ranks for finding in found.findings] == [[3]]
    assert lines(found) == []
    assert len(lines(msgspec.structs.replace(found, findings=[]))) == 1


def test_many_stretches_are_counted_instead_of_listed(tmp_path: Path) -> None:
    def comes_and_goes(step: int, rank: int) -> dict[str, float]:
        return {"forward": 0.05} if rank == 2 and step % 100 >= 50 else {}

    said = [line for line in lines(report(tmp_path, comes_and_goes, steps=800)) if line.startswith("rank 2")]

    assert said[0].endswith("; and 4 more")


@pytest.mark.parametrize("steps", [12, 300])
def test_of_a_steady_or_a_short_run_nothing_is_said_or_drawn(tmp_path: Path, steps: int) -> None:
    found = report(tmp_path, steps=steps)

    assert lines(found) == []
    assert "Over the run" not in render(found)


def test_the_page_marks_each_change_where_it_is_and_each_late_stretch(tmp_path: Path) -> None:
    page = render(report(tmp_path, late(3, 152, 300))).partition("Over the run")[2].partition("By rank")[0]

    (mark,) = re.findall(r'class="mark" style="left:([\d.]+)%">1<', page)
    (dash,) = re.findall(r'<line x1="([\d.]+)"', page)
    (begin, width) = re.findall(r'<rect x="([\d.]+)" width="([\d.]+)"', page)[0]
    assert float(mark) == pytest.approx(50, abs=1)
    assert float(dash) == pytest.approx(10 * float(mark), abs=0.1)
    assert float(begin) == pytest.approx(500, abs=10)
    assert float(begin) + float(width) == pytest.approx(1000, abs=1)
    assert 'aria-label="rank 3 late"' in page
    assert '<b class="number">1</b> from step 15' in page


def test_the_axis_is_that_of_usual_steps_whatever_saves_take(tmp_path: Path) -> None:
    def saving(step: int, rank: int) -> dict[str, float]:
        return slower(150)(step, rank) | ({"checkpoint": 5.0} if step % 20 == 0 else {})

    high, low = re.findall(r"<span>([\d.]+) ms</span>", render(report(tmp_path, saving)).partition("Over the run")[2])[:2]

    assert float(high) < 140
    assert 60 < float(low) < 101
