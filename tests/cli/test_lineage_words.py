from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tachoscope_cli.lineage_words import lines


def test_code_and_data_stand_first_with_short_digests() -> None:
    shown = lines({"python_version": "3.11", "data_snapshot": "2026", "code_reference": f"git:{'3f' * 20} train/main.py"})
    assert shown == ["made of: code git:3f3f3f3f3f3f train/main.py, data 2026", "         python_version 3.11"]


def test_a_command_that_was_started_as_it_is_stands_there_once() -> None:
    assert lines({"launch_command": "python train.py", "command": "python train.py"}) == ["made of: command python train.py"]
    assert lines({"launch_command": "torchrun train.py", "command": "python train.py"}) == [
        "made of: started as torchrun train.py, command python train.py"
    ]


@given(st.dictionaries(st.text(st.sampled_from("abc_"), min_size=1), st.text(st.sampled_from("xyz "), min_size=1, max_size=200)))
def test_no_other_value_is_left_out(lineage: dict[str, str]) -> None:
    text = "\n".join(lines(lineage))
    assert all(f"{name} {value[:160]}" in text for name, value in lineage.items())
