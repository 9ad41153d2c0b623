"""Which runs are offered as baselines, and in which order."""

from tachoscope_analyzers.compare.baselines import likely_baselines, pattern


def names(job: str, others: list[str], lineages: dict[str, dict[str, str]] | None = None) -> list[str]:
    return [one.job for one in likely_baselines(job, others, lineages)]


def test_the_same_name_with_other_numbers_comes_first() -> None:
    assert pattern("llm-2026-03-01") == pattern("llm-2026-02-27")
    assert names("llm-42", ["vision-42", "llm-small", "llm-7"]) == ["llm-7", "llm-small", "vision-42"]


def test_a_job_is_not_its_own_baseline() -> None:
    assert names("a", ["a", "b", "b"]) == ["b"]
    assert names("a", ["a"]) == []


def test_of_names_alike_the_one_made_of_the_same_things_comes_first() -> None:
    lineages = {"run-3": {"image": "x", "data": "1"}, "run-2": {"image": "y", "data": "2"}, "run-1": {"image": "x", "data": "1"}}

    assert names("run-3", ["run-2", "run-1", "run-0"], lineages) == ["run-1", "run-2", "run-0"]
    assert [one.different for one in likely_baselines("run-3", ["run-2", "run-1", "run-0"], lineages)] == [0, 2, None]


def test_thousands_of_runs_are_all_there() -> None:
    others = [f"other-{number}" for number in range(3000)] + ["train-llm-7"]

    found = names("train-llm-8", others)

    assert found[0] == "train-llm-7"
    assert len(found) == 3001
