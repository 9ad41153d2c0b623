"""What checkpoints are called in records."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope.checkpoints.checkpoint_name import absolute_path, after_rename, looks_temporary, reference_of, without_secrets
from trying import each

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=4, max_size=12)


def test_a_path_is_absolute_and_a_link_is_what_it_points_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step-100.pt").touch()
    (tmp_path / "latest.pt").symlink_to("step-100.pt")

    assert reference_of("latest.pt") == reference_of(Path("step-100.pt")) == str(tmp_path.resolve() / "step-100.pt")
    with open("latest.pt", "rb") as file:
        assert reference_of(file) == reference_of("step-100.pt")


def test_what_has_no_name_has_no_reference() -> None:
    assert reference_of(io.BytesIO()) == reference_of(None) == reference_of("") == reference_of(7) == ""


@given(user=WORDS, password=WORDS, token=WORDS, path=WORDS)
def test_no_credential_of_a_url_is_in_its_reference(user: str, password: str, token: str, path: str) -> None:
    secret = f"https://{user}:{password}@Host.example:8443/{path}?X-Amz-Signature={token}#{token}"

    assert reference_of(secret) == without_secrets(secret) == f"https://Host.example:8443/{path}"


@each("url", ["s3://bucket/run/step-5", "gs://bucket/a.pt", "memory://x", "hdfs://node:9000/ckpt"])
def test_a_url_without_secrets_stays_as_it_is(url: str) -> None:
    assert reference_of(url) == url


def test_a_malformed_url_shows_no_password_either() -> None:
    assert "secret" not in reference_of("https://user:secret@[half/x?token=secret")


@each("name", ["model.pt.tmp", "tmpab12cd", "model.tmp.pt", ".model.pt.x7", "a.part", "model.pt~", "x.pt.incomplete"])
def test_a_file_named_as_temporary_is_taken_for_one(name: str) -> None:
    assert looks_temporary(f"/checkpoints/{name}")


@each("name", ["model.pt", "step=100.ckpt", "checkpoint-500", "latest", "template.pt", "partition-3.pt", "newest.pt"])
def test_a_file_with_a_name_of_its_own_is_not_temporary(name: str) -> None:
    assert not looks_temporary(f"/tmp/new/{name}")


def test_renaming_a_folder_renames_what_is_in_it_and_nothing_beside_it() -> None:
    assert after_rename("/c/tmp-5/model.pt", "/c/tmp-5", "/c/5") == "/c/5/model.pt"
    assert after_rename("/c/a.tmp", "/c/a.tmp", "/c/a") == "/c/a"
    assert after_rename("/c/tmp-55/model.pt", "/c/tmp-5", "/c/5") is None


def test_the_target_of_a_rename_is_the_link_itself_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "latest.pt").symlink_to("elsewhere.pt")

    assert absolute_path(tmp_path / "latest.pt") == str(tmp_path.resolve() / "latest.pt")
