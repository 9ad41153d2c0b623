"""The page that asks for the password leads on within this site only, and shows foreign text as text."""

from __future__ import annotations

import pytest

from tachoscope_explorer.server import login


@pytest.mark.parametrize("address", ["/", "/job?job=a&rank=3", "/trace?from=1&to=2", "/job?job=a%2Fb", "/x~(y)"])
def test_it_leads_on_to_the_page_that_was_asked_for(address: str) -> None:
    assert login.next_of(address) == address


@pytest.mark.parametrize(
    "address",
    [
        *("//evil.example.com", "https://evil.example.com", "javascript:alert(1)", "/\\evil.example.com", "\\\\evil", "", "job"),
        *("/a\r\nSet-Cookie: x=y", "/a b", "/ä", "/" + "a" * 5000, "/\t/evil.example.com", "/login", "/logout", "/a\\b"),
    ],
)
def test_it_never_leads_to_another_site_or_in_circles(address: str) -> None:
    assert login.next_of(address) == "/"


def test_what_it_is_given_cannot_leave_its_place_in_the_page() -> None:
    shown = login.page('/"><script>alert(1)</script>', "<b>said</b>").decode()

    assert "<script>" not in shown
    assert "<b>" not in shown
    assert 'role="alert"' in shown
    assert 'role="alert"' not in login.page("/").decode()


def test_seconds_to_wait_are_whole_and_never_none() -> None:
    assert login.please_wait(0.2).endswith("in 1 second.")
    assert login.please_wait(59.01).endswith("in 60 seconds.")
