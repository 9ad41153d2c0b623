"""Boards are pushed to a fake Grafana: new, changed, unchanged, and never over what somebody else made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from board_making import Json, made
from fake_grafana import TOKEN, FakeGrafana, Kept, running
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.dashboard_apis import Done, fingerprint
from tachoscope_dashboards.grafana_api import Grafana
from tachoscope_dashboards.push import push


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with running() as fake:
        yield fake


def board(uid: str = "small", **changes: object) -> Json:
    return {**made(), "uid": uid, **changes}


def pushed(
    fake: FakeGrafana, *boards: Json, folder: str = "tachoscope", overwrite: bool = False, dry_run: bool = False
) -> list[Done]:
    return list(push(Grafana(fake.url, TOKEN), boards, folder, overwrite=overwrite, dry_run=dry_run))


def whats(done: Sequence[Done]) -> list[tuple[str, str]]:
    return [(one.uid, one.what) for one in done]


def posts(fake: FakeGrafana) -> list[str]:
    return [path for method, path in fake.asked if method == "POST"]


def test_boards_are_created_in_a_folder_that_is_made_for_them(grafana: FakeGrafana) -> None:
    assert whats(pushed(grafana, board("a"), board("b"))) == [("a", "created"), ("b", "created")]

    assert grafana.folders == {"f0": "tachoscope"}
    assert {uid: (kept.folder, kept.dashboard["version"]) for uid, kept in grafana.boards.items()} == {
        "a": ("f0", 1),
        "b": ("f0", 1),
    }
    kept = grafana.boards["a"].dashboard
    assert {**kept, "version": 1, "id": None} == {**board("a"), "id": None}


def test_a_folder_that_is_there_is_taken(grafana: FakeGrafana) -> None:
    grafana.folders = {f"x{number}": f"Folder {number}" for number in range(1000)} | {"mine": "Training"}
    pushed(grafana, board(), folder="Training")

    assert grafana.boards["small"].folder == "mine"
    assert len(grafana.folders) == 1001


def test_what_is_there_unchanged_is_left_as_it_is(grafana: FakeGrafana) -> None:
    pushed(grafana, board("a"), board("b"))
    grafana.asked.clear()

    assert whats(pushed(grafana, board("a"), board("b", title="New"))) == [("a", "unchanged"), ("b", "updated")]
    assert posts(grafana) == ["/api/dashboards/db"]
    assert grafana.boards["b"].dashboard["version"] == 2
    assert whats(pushed(grafana, board("a"), board("b", title="New"))) == [("a", "unchanged"), ("b", "unchanged")]


@pytest.mark.parametrize("lists_versions", [True, False])
def test_versions_are_understood_as_grafanas_of_now_and_of_before_list_them(grafana: FakeGrafana, lists_versions: bool) -> None:
    grafana.lists_versions = lists_versions
    for number in range(7):
        pushed(grafana, board(title=f"{number}"))

    assert whats(pushed(grafana, board(title="6"))) == [("small", "unchanged")]
    assert grafana.boards["small"].dashboard["version"] == 7


def test_another_folder_moves_a_board(grafana: FakeGrafana) -> None:
    pushed(grafana, board())

    assert whats(pushed(grafana, board(), folder="Training")) == [("small", "updated")]
    assert grafana.folders[grafana.boards["small"].folder] == "Training"


def test_what_a_person_changed_is_refused_and_overwritten_when_told_so(grafana: FakeGrafana) -> None:
    pushed(grafana, board("a"), board("b"))
    grafana.save_by_hand("a")

    refused, unchanged = pushed(grafana, board("a"), board("b"))
    assert (refused.what, unchanged.what) == ("refused", "unchanged")
    assert "its version 2 was made by admin, not by a push" in refused.why
    assert "--overwrite" in refused.why
    assert grafana.boards["a"].dashboard["title"] == "changed"

    assert whats(pushed(grafana, board("a"), overwrite=True)) == [("a", "updated")]
    assert grafana.boards["a"].dashboard["title"] == board()["title"]
    assert whats(pushed(grafana, board("a"))) == [("a", "unchanged")]


def test_a_board_of_others_that_has_our_uid_is_refused(grafana: FakeGrafana) -> None:
    versions = [{"version": 3, "message": "tachoscope dashboards push, by hand", "createdBy": "eve"}]
    grafana.boards["small"] = Kept({"uid": "small", "title": "Theirs", "version": 3}, "f9", versions, by="eve")

    (refused,) = pushed(grafana, board())
    assert "made by eve" in refused.why
    assert grafana.boards["small"].dashboard["title"] == "Theirs"


def test_a_board_whose_versions_cannot_be_told_is_taken_for_somebody_elses(grafana: FakeGrafana) -> None:
    pushed(grafana, board())
    grafana.boards["small"].versions = []

    assert whats(pushed(grafana, board())) == [("small", "refused")]


def test_a_provisioned_board_is_refused_even_when_told_to_overwrite(grafana: FakeGrafana) -> None:
    pushed(grafana, board())
    grafana.boards["small"].provisioned = True
    grafana.asked.clear()

    (refused,) = pushed(grafana, board(title="New"), overwrite=True)
    assert "from a file" in refused.why
    assert posts(grafana) == []


def test_what_is_changed_while_it_is_pushed_is_not_overwritten(grafana: FakeGrafana) -> None:
    pushed(grafana, board())
    grafana.before_post = lambda: grafana.save_by_hand("small")

    for overwrite in (False, True):
        (refused,) = pushed(grafana, board(title="New"), overwrite=overwrite)
        assert refused.what == "refused"
        assert grafana.boards["small"].dashboard["title"] == "changed"
    assert "during this push" in refused.why


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((412, {"status": "name-exists", "message": "same title"}), "another board has its title or uid (same title)"),
        ((412, {"status": "plugin-dashboard", "message": "x"}), "it belongs to a plugin"),
        ((400, {"message": "bad\x1b[31m request"}), "Grafana answers 400: bad [31m request"),
        ((409, "x"), "Grafana answers 409"),
    ],
)
def test_why_grafana_refuses_a_board_is_said_and_the_others_go_on(
    grafana: FakeGrafana, answer: tuple[int, object], said: str
) -> None:
    grafana.refuse = answer
    done = pushed(grafana, board("a"), board("b"))

    assert [one.what for one in done] == ["refused", "refused"]
    assert said in done[0].why


def test_a_dry_run_changes_nothing_and_says_what_would_be_done(grafana: FakeGrafana) -> None:
    pushed(grafana, board("a"), board("b"), board("c"))
    grafana.save_by_hand("c")
    grafana.asked.clear()
    boards = (board("a"), board("b", title="New"), board("c"), board("d"))

    done = pushed(grafana, *boards, dry_run=True)
    assert whats(done) == [("a", "unchanged"), ("b", "updated"), ("c", "refused"), ("d", "created")]
    assert posts(grafana) == []
    assert whats(pushed(grafana, board("a"), folder="New", dry_run=True)) == [("a", "updated")]
    assert list(grafana.folders.values()) == ["tachoscope"]


def test_two_folders_of_one_name_are_no_place(grafana: FakeGrafana) -> None:
    grafana.folders = {"a": "tachoscope", "b": "tachoscope"}

    with pytest.raises(TachoscopeError, match="2 folders 'tachoscope'"):
        pushed(grafana, board())


def test_an_answer_that_is_no_board_is_said(grafana: FakeGrafana) -> None:
    grafana.boards["small"] = Kept({"title": "no version"}, "f0", [])

    with pytest.raises(TachoscopeError, match="answers 200 about the board small"):
        pushed(grafana, board())


def test_a_fingerprint_is_of_what_a_board_holds_and_of_nothing_else() -> None:
    assert fingerprint(board()) == fingerprint(dict(reversed(board().items())))
    assert fingerprint(board()) != fingerprint(board(title="New"))
