from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tachoscope_show.report.lineage_words import lines


def test_code_and_data_stand_first_with_short_digests() -> None:
    shown = lines({"shards": "12", "data_snapshot": "2026", "code_reference": f"git:{'3f' * 20} train/main.py"})
    assert shown == ["made of: code git:3f3f3f3f3f3f train/main.py, data 2026", "         shards 12"]


def test_versions_and_environment_are_for_the_page() -> None:
    assert lines({"python_version": "3.11", "environment": "WORLD_SIZE=2", "command": "python train.py"}) == [
        "made of: command python train.py"
    ]


def test_of_two_commands_the_one_that_was_typed_is_shown() -> None:
    assert lines({"command": "python train.py"}) == ["made of: command python train.py"]
    assert lines({"launch_command": "torchrun train.py", "command": "python train.py"}) == ["made of: command torchrun train.py"]


@given(st.dictionaries(st.text(st.sampled_from("abc_"), min_size=1), st.text(st.sampled_from("xyz "), min_size=1, max_size=200)))
def test_no_other_value_is_left_out(lineage: dict[str, str]) -> None:
    text = "\n".join(lines(lineage))
    assert all(f"{name} {value[:120]}" in text for name, value in lineage.items())
