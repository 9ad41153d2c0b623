import pytest

from tachoscope.training import parallel_layout as layout
from trying import each


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_said", {})


@each(
    ("text", "rank", "pipeline"),
    [
        ("pp=2", 1, [0, 1]),
        ("pp=2,dp=2", 1, [1, 3]),
        ("dp=2,pp=2", 1, [0, 1]),
        ("pp=2,dp=2,tp=2", 5, [1, 5]),
    ],
)
def test_the_first_dimension_is_the_outermost(text: str, rank: int, pipeline: list[int]) -> None:
    sizes = layout.parsed(text)
    world = 2 if text == "pp=2" else 8 if "tp" in text else 4

    assert layout.of_process({layout.VARIABLE: text}, rank, world)["groups"]["pp"] == [pipeline]
    assert list(layout.complete(sizes, world)) == [name for name, _, _ in (part.partition("=") for part in text.split(","))]


def test_every_rank_is_in_one_group_of_each_dimension_and_the_groups_agree() -> None:
    sizes = {"pp": 3, "dp": 2, "tp": 2}

    for name, size in sizes.items():
        found = {tuple(layout.groups_of(rank, sizes)[name][0]) for rank in range(12)}
        assert sorted(rank for group in found for rank in group) == list(range(12))
        assert {len(group) for group in found} == {size}


def test_what_the_given_dimensions_do_not_fill_is_data_parallel() -> None:
    assert layout.of_process({layout.VARIABLE: "pp=2"}, 0, 4) == {
        "layout": {"pp": 2, "dp": 2},
        "groups": {"pp": [[0, 2]], "dp": [[0, 1]]},
    }


@pytest.mark.parametrize("text", ["pp=3", "pp", "pp=two", "stages=2", "pp=2,dp=1"])
def test_a_layout_that_does_not_fit_is_a_line_on_stderr_and_no_layout(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert layout.of_process({layout.VARIABLE: text}, 0, 4) == {}
    assert "layout" in capsys.readouterr().err


def test_without_a_word_there_is_no_layout() -> None:
    assert layout.of_process({}, 0, 4) == {}


def test_what_the_job_says_goes_before_the_environment_and_must_make_sense() -> None:
    layout.describe({"pp": 2})

    assert layout.of_process({layout.VARIABLE: "dp=2"}, 0, 2)["layout"] == {"pp": 2}
    with pytest.raises(ValueError, match="stages"):
        layout.describe({"stages": 2})
