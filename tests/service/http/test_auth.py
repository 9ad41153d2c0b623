"""Verdicts on credentials, without sockets."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import Future

import bcrypt
import pytest

from left_behind import LeftBehind
from tachoscope_service.http.auth import REMEMBERED, WAITING, Auth, AuthResult

pytestmark = [pytest.mark.alone, pytest.mark.waits]  # it counts the threads of its process

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4))
BOTH = (AuthResult.ALLOWED, AuthResult.REFUSED)


def basic(user: str, password: str | bytes) -> str:
    secret = password.encode() if isinstance(password, str) else password
    return "Basic " + base64.b64encode(user.encode() + b":" + secret).decode()


def verdict(auth: Auth, header: str | None) -> AuthResult:
    later: Future[AuthResult] = Future()
    now = auth.check(header, later.set_result)
    return now if now is not None else later.result(60)


class Counting:
    """bcrypt that counts and can be held up."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, bytes]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.calls.append((password, hashed))
        assert self.go.wait(60)
        return password == b"secret"


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def auth(counting):
    auth = Auth({"alice": HASH}, {"one": b"token-one", "two": b"token-two"}, compare=counting)
    yield auth
    counting.go.set()
    auth.close(wait=True)


def test_without_users_and_tokens_everybody_is_allowed():
    assert verdict(Auth({}, {}), None) is AuthResult.ALLOWED
    assert Auth({}, {}).challenges == ()


def test_a_right_password_is_allowed_and_a_wrong_one_refused_by_real_bcrypt():
    for prefix in (b"$2a", b"$2b", b"$2y"):
        auth = Auth({"alice": prefix + HASH[3:]}, {})
        assert verdict(auth, basic("alice", "secret")) is AuthResult.ALLOWED
        assert verdict(auth, basic("alice", "Secret")) is AuthResult.REFUSED
        assert verdict(auth, basic("bob", "secret")) is AuthResult.REFUSED
        auth.close(wait=True)


def test_strange_passwords_are_wrong_ones_and_harm_nobody():
    auth = Auth({"alice": HASH}, {})
    for password in ("", "a\0b", "y" * 72, "y" * 5000, b"\xff\xfe", "é"):
        assert verdict(auth, basic("alice", password)) is AuthResult.REFUSED
    assert verdict(auth, basic("alice", "secret")) is AuthResult.ALLOWED
    auth.close(wait=True)


def test_a_password_longer_than_bcrypt_reads_is_cut_as_htpasswd_and_go_cut_it():
    auth = Auth({"alice": bcrypt.hashpw(b"y" * 72, bcrypt.gensalt(4))}, {})
    assert verdict(auth, basic("alice", "y" * 90)) is AuthResult.ALLOWED
    auth.close(wait=True)


@pytest.mark.parametrize(
    "header", [None, "", "Basic", "Basic !!!", "Basic YWJj", "Bearer", "Bearer nonsense", "Digest x", "Basic é"]
)
def test_what_is_no_credential_is_refused_without_bcrypt(auth, counting, header):
    assert verdict(auth, header) is AuthResult.REFUSED
    assert not counting.calls


def test_each_token_is_allowed_and_the_name_of_the_scheme_has_no_case(auth, counting):
    assert [verdict(auth, f"{scheme} token-{number}") for scheme, number in (("Bearer", "one"), ("bEARER", "two"))] == [
        AuthResult.ALLOWED
    ] * 2
    assert not counting.calls
    assert auth.challenges == ('Basic realm="tachoscope"', 'Bearer realm="tachoscope"')


def test_a_right_answer_is_remembered_and_a_wrong_one_is_not(auth, counting):
    for _ in range(5):
        assert verdict(auth, basic("alice", "secret")) is AuthResult.ALLOWED
    assert len(counting.calls) == 1
    for _ in range(3):
        assert verdict(auth, basic("alice", "wrong")) is AuthResult.REFUSED
    assert len(counting.calls) == 4


def test_an_unknown_user_costs_a_bcrypt_of_a_known_one_and_is_refused_even_if_it_matches(auth, counting):
    assert verdict(auth, basic("nobody", "secret")) is AuthResult.REFUSED
    assert counting.calls == [(b"secret", HASH)]


def test_the_memory_of_right_answers_is_bounded_and_keeps_those_in_use(counting):
    auth = Auth({f"user{number}": HASH for number in range(REMEMBERED + 20)}, {}, compare=counting)
    for number in range(REMEMBERED + 20):
        assert verdict(auth, basic(f"user{number}", "secret")) is AuthResult.ALLOWED
        assert verdict(auth, basic("user0", "secret")) is AuthResult.ALLOWED
    assert len(auth._remembered) == REMEMBERED
    assert len(counting.calls) == REMEMBERED + 20  # user0, in use all the time, was never asked twice
    auth.close(wait=True)


def test_no_password_and_no_token_is_kept_as_it_is(auth):
    assert verdict(auth, basic("alice", "secret")) is AuthResult.ALLOWED
    held = repr((auth._remembered, auth._tokens, auth._waiting))
    assert "secret" not in held
    assert "token" not in held


def test_beyond_the_short_queue_guesses_are_told_to_come_again_and_the_known_are_not_delayed(auth, counting):
    assert verdict(auth, basic("alice", "secret")) is AuthResult.ALLOWED
    counting.go.clear()
    answers: list[Future[AuthResult]] = [Future() for _ in range(WAITING + 20)]
    now = []
    for number, future in enumerate(answers):
        now.append(auth.check(basic("alice", f"guess {number}"), future.set_result))
    assert now.count(AuthResult.BUSY) >= 19  # one is being checked, sixteen wait
    assert auth.check(basic("alice", "secret"), lambda _: None) is AuthResult.ALLOWED
    assert auth.check("Bearer token-one", lambda _: None) is AuthResult.ALLOWED
    counting.go.set()
    assert {future.result(60) for future, verdict in zip(answers, now, strict=True) if verdict is None} == {AuthResult.REFUSED}


def test_guesses_are_checked_one_at_a_time_and_the_same_guess_once(auth, counting):
    left = LeftBehind()
    counting.go.clear()
    answers: list[Future[AuthResult]] = [Future() for _ in range(50)]
    for future in answers:
        assert auth.check(basic("alice", "secret"), future.set_result) is None
    assert len(left.threads("tachoscope-auth")) == 1
    counting.go.set()
    assert {future.result(60) for future in answers} == {AuthResult.ALLOWED}
    assert len(counting.calls) == 1


def test_closing_answers_those_who_wait_and_ends_the_thread(counting):
    auth = Auth({"alice": HASH}, {}, compare=counting)
    counting.go.clear()
    answers: list[Future[AuthResult]] = [Future() for _ in range(WAITING)]
    for number, future in enumerate(answers):
        auth.check(basic("alice", f"{number}"), future.set_result)
    auth.close(wait=False)
    assert {future.result(60) for future in answers} == {AuthResult.BUSY}
    counting.go.set()
    auth.close(wait=True)
    assert auth.check(basic("alice", "secret"), lambda _: None) is AuthResult.BUSY


def test_credentials_that_were_allowed_have_the_name_of_their_client(auth):
    assert auth.client(basic("alice", "secret")) == "user:alice"
    assert auth.client("bearer token-two") == "token:two"
    assert [auth.client(header) for header in (None, basic("bob", "x"), "Basic ?", "Bearer token", "Digest x")] == [""] * 5
