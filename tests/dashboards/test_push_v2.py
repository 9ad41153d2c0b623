"""Boards are pushed to a fake Grafana 13 as resources in schema V2, and to one without that API as before."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest

from board_making import Json, made
from fake_grafana import TOKEN, FakeGrafana, running
from tachoscope_dashboards.grafana_api import Grafana
from tachoscope_dashboards.parts.grafana_v2 import to_resource
from tachoscope_dashboards.push import push


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with running() as fake:
        fake.v2 = True
        yield fake


def board(**changes: object) -> Json:
    return {**made(), "uid": "small", **changes}


def pushed(fake: FakeGrafana, one: Json, **options: bool) -> tuple[str, str]:
    (done,) = push(Grafana(fake.url, TOKEN), [one], "tachoscope", **options)
    return done.what, done.why


def change_by_hand(fake: FakeGrafana) -> None:
    changed = deepcopy(fake.resources["small"])
    changed["metadata"]["annotations"].pop("grafana.app/message", None)
    fake.save_resource(changed, by="user:ada")


def test_a_board_is_created_as_a_resource_in_its_folder_then_unchanged_then_updated(grafana: FakeGrafana) -> None:
    assert [pushed(grafana, board())[0], pushed(grafana, board())[0]] == ["created", "unchanged"]
    assert pushed(grafana, board(title="other"))[0] == "updated"

    kept = grafana.resources["small"]
    assert kept["spec"] == to_resource(board(title="other"))["spec"]
    assert kept["metadata"]["annotations"]["grafana.app/folder"] == "f0"
    assert grafana.boards == {}


def test_a_dry_run_writes_nothing(grafana: FakeGrafana) -> None:
    assert pushed(grafana, board(), dry_run=True)[0] == "created"
    assert grafana.resources == {}


def test_what_a_person_changed_is_refused_unless_it_may_be_overwritten(grafana: FakeGrafana) -> None:
    pushed(grafana, board())
    change_by_hand(grafana)

    what, why = pushed(grafana, board(title="other"))
    assert what == "refused"
    assert "by user:ada" in why
    assert pushed(grafana, board(title="other"), overwrite=True)[0] == "updated"


def test_what_is_changed_between_looking_and_writing_is_not_overwritten(grafana: FakeGrafana) -> None:
    pushed(grafana, board())
    grafana.before_post = lambda: change_by_hand(grafana)

    assert pushed(grafana, board(title="other")) == ("refused", "it was changed during this push: push again")


def test_what_grafana_manages_from_elsewhere_is_refused_with_the_reason(grafana: FakeGrafana) -> None:
    pushed(grafana, board())
    grafana.resources["small"]["metadata"]["annotations"]["grafana.app/managedBy"] = "repo"

    assert "Grafana loads it from a file" in pushed(grafana, board(title="other"))[1]


@pytest.mark.parametrize("raw", [False, True], ids=["that API is not there", "a page is there instead"])
def test_a_grafana_without_that_api_is_given_the_schema_that_it_knows(grafana: FakeGrafana, raw: bool) -> None:
    grafana.v2 = False
    grafana.page_below_apis = raw

    assert pushed(grafana, board())[0] == "created"
    assert grafana.boards["small"].dashboard["schemaVersion"] == board()["schemaVersion"]
