"""`make lint` keeps folders and the README small."""

from __future__ import annotations

import check_layout


def test_a_folder_with_more_than_25_python_files_is_named_and_its_folders_do_not_count() -> None:
    files = [f"core/rooms/{number}.py" for number in range(check_layout.MOST_FILES)]

    assert check_layout.large_folders([*files, "core/rooms/inner/one.py"]) == []
    (line,) = check_layout.large_folders([*files, "core/rooms/more.py"])
    assert line.startswith("core/rooms: 26 Python files")


def test_a_readme_of_more_than_70_lines_is_named() -> None:
    assert check_layout.long_readme("line\n" * 70) == []
    assert check_layout.long_readme("line\n" * 71)
