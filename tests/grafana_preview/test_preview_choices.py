"""What variables may be and are: from a real Prometheus, and from the page's address."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

import preview_making
from grafana_preview.choices import choices, chosen
from grafana_preview.interpolate import ALL, query
from grafana_preview.times import span
from preview_making import NODE_NAMES
from tachoscope_core.errors import TachoscopeError


def board(*variables: Mapping[str, Any]) -> dict[str, Any]:
    return {"templating": {"list": [{"name": "datasource", "type": "datasource"}, *variables]}}


def variable(name: str, asked: str, *, multi: bool = True, include_all: bool = True, all_value: str = ".*") -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "type": "query", "label": name.title(), "query": {"query": asked}}
    found |= {"multi": multi, "includeAll": include_all}
    return found | ({"allValue": all_value} if all_value else {})


NODE = variable("node", "label_values(demo_up, instance)")
ONE = variable("job", 'label_values(demo_up{instance=~"$node"}, training_job)', multi=False, include_all=False)
SOME = variable("some", "label_values(demo_up, instance)", include_all=False, all_value="")
LISTED = variable("listed", "label_values(demo_share, state)", all_value="")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not shutil.which("prometheus"):
        pytest.skip("needs prometheus")
    with preview_making.planted(tmp_path_factory.mktemp("prometheus")) as url:
        yield url


def found(url: str, variables: Sequence[Mapping[str, Any]], **asked: list[str]) -> dict[str, tuple[str, ...]]:
    now = time.time()
    asking = {f"var-{name}": values for name, values in asked.items()}
    return {one.name: one.values for one in choices(board(*variables), asking, url, span(now - 3600, now, 100))}


def test_nothing_chosen_is_all_where_that_may_be_else_the_first(prometheus: str) -> None:
    values = found(prometheus, [NODE, ONE, SOME, LISTED])
    assert values == {"node": (ALL,), "job": ("resnet",), "some": (sorted(NODE_NAMES)[0],), "listed": (ALL,)}


def test_options_are_the_labels_values_in_their_natural_order(prometheus: str) -> None:
    now = time.time()
    (one,) = choices(board(NODE), {}, prometheus, span(now - 3600, now, 100))
    assert sorted(one.options) == sorted(NODE_NAMES)
    assert one.title == "Node"


def test_a_variable_depends_on_those_before_it(prometheus: str) -> None:
    assert found(prometheus, [NODE, ONE], node=["nowhere"]) == {"node": ("nowhere",), "job": ()}
    assert found(prometheus, [NODE, ONE], node=[NODE_NAMES[2]]) == {"node": (NODE_NAMES[2],), "job": ("resnet",)}


def test_all_of_listed_values_asks_for_each_of_them(prometheus: str) -> None:
    now = time.time()
    asking = span(now - 3600, now, 100)
    filled = query('x{state=~"$listed"}', choices(board(LISTED), {}, prometheus, asking), asking)
    assert filled == 'x{state=~"(compute|data_wait|unexplained)"}'


def test_the_address_says_all_in_three_ways_a_single_value_is_the_first_and_an_empty_one_is_one() -> None:
    for word in (ALL, "All", ".*"):
        assert chosen(board(NODE), {"var-node": [word]})[0].values == (ALL,)
    assert chosen(board(ONE), {"var-job": ["All"]})[0].values == ()
    assert chosen(board(ONE), {"var-job": [""]})[0].values == ("",)
    assert chosen(board(NODE), {"var-node": ["a", "b"]})[0].values == ("a", "b")
    assert chosen(board(ONE), {"var-job": ["a", "b"]})[0].values == ("a",)


def test_a_variable_that_asks_for_something_else_is_told(prometheus: str) -> None:
    with pytest.raises(TachoscopeError, match=r"variable x: the preview knows label_values"):
        found(prometheus, [variable("x", "query_result(up)")])
