"""Sessions end by themselves, and guessing takes ever longer."""

from __future__ import annotations

import pytest

from tachoscope_explorer.server.sessions import LIFE_SECONDS, Sessions, Tries


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_lasts_twelve_hours_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    word = sessions.begin()

    clock.now += LIFE_SECONDS - 1
    assert (found := sessions.find(word)) is not None
    assert sessions.seconds_left(found) == 1
    clock.now += 1
    assert sessions.find(word) is None


def test_words_are_long_and_never_the_same_and_no_other_is_known() -> None:
    sessions = Sessions()
    words = {sessions.begin() for _ in range(100)}

    assert len(words) == 100
    assert min(map(len, words)) >= 43
    assert sessions.find("") is None
    assert sessions.find(next(iter(words))[:-1]) is None


def test_ending_a_session_tells_what_is_open_under_it() -> None:
    sessions = Sessions()
    word = sessions.begin()
    session = sessions.find(word)
    assert session is not None

    sessions.end(word)

    assert session.over.is_set()
    assert sessions.find(word) is None
    sessions.end("unknown")


def test_five_wrong_passwords_are_free_and_each_further_one_makes_the_wait_longer() -> None:
    clock = Clock()
    tries, waits = Tries(clock), []
    for _ in range(14):
        clock.now += tries.wait("192.0.2.7")
        tries.count("192.0.2.7")
        waits.append(tries.wait("192.0.2.7"))

    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_waiting_helps_one_address_does_not_count_for_another_and_a_right_password_forgives() -> None:
    clock = Clock()
    tries = Tries(clock)
    for _ in range(6):
        tries.count("192.0.2.7")

    assert (tries.wait("192.0.2.7"), tries.wait("192.0.2.8")) == (2, 0)
    clock.now += 1.5
    assert tries.wait("192.0.2.7") == pytest.approx(0.5)
    tries.forgive("192.0.2.7")
    assert tries.wait("192.0.2.7") == 0


def test_a_network_of_ipv6_is_one_address_and_ipv4_is_the_same_in_either_writing() -> None:
    tries = Tries(Clock())
    for number in range(6):
        tries.count(f"2001:db8::{number}")
        tries.count("::ffff:192.0.2.7")

    assert tries.wait("2001:db8::ffff") > 0
    assert tries.wait("2001:db8:0:1::1") == 0
    assert tries.wait("192.0.2.7") > 0


def test_of_very_many_addresses_the_quietest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachoscope_explorer.server.sessions._MOST_ADDRESSES", 3)
    tries = Tries(Clock())
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        for _ in range(6):
            tries.count(address)
    tries.count("10.0.0.1")
    tries.count("10.0.0.4")

    assert [tries.wait(f"10.0.0.{last}") > 0 for last in (1, 2, 3)] == [True, False, True]


def test_an_hour_of_quiet_is_as_good_as_a_right_password() -> None:
    clock = Clock()
    tries = Tries(clock)
    for _ in range(9):
        tries.count("10.0.0.1")
    clock.now += 3601
    tries.count("10.0.0.1")

    assert tries.wait("10.0.0.1") == 0


def test_of_very_many_sessions_the_oldest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachoscope_explorer.server.sessions._MOST_SESSIONS", 2)
    sessions = Sessions()
    words = [sessions.begin() for _ in range(3)]

    assert [sessions.find(word) is not None for word in words] == [False, True, True]
