"""The quarantine list: one name a shard however it is asked for, and documents of many nodes that merge without a conflict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.shard_quarantine import Failure, Shard, shard_name

TIMES = st.integers(0, 20).map(float)
FAILURES = st.builds(Failure, rank=st.integers(0, 3), attempt=st.integers(0, 2), time=TIMES, error=st.sampled_from("ab"))
SHARDS = st.builds(
    lambda failures, quarantined, released: shard_quarantine._merged(
        Shard(quarantined=quarantined, released=released), Shard(failures=tuple(failures))
    ),
    st.lists(FAILURES, max_size=5),
    TIMES,
    TIMES,
)
DOCUMENTS = st.dictionaries(st.sampled_from(["x", "y", "z"]), SHARDS, max_size=3)


def merged(*documents: shard_quarantine.Shards) -> shard_quarantine.Shards:
    together: shard_quarantine.Shards = {}
    for document in documents:
        shard_quarantine.merge(together, document)
    return together


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_documents_merge_in_any_order_and_any_number_of_times(
    one: shard_quarantine.Shards, two: shard_quarantine.Shards, three: shard_quarantine.Shards
) -> None:
    assert merged(one, two, three) == merged(three, one, two) == merged(merged(two, three), one, two, one)


@given(DOCUMENTS, DOCUMENTS)
def test_merging_says_whether_there_was_news(one: shard_quarantine.Shards, two: shard_quarantine.Shards) -> None:
    before = merged(one)
    together = dict(before)
    changed = shard_quarantine.merge(together, two)

    assert changed == (together != before)
    assert not shard_quarantine.merge(together, two)


@given(DOCUMENTS)
def test_a_document_is_read_as_it_was_written(shards: shard_quarantine.Shards) -> None:
    assert shard_quarantine.decode(shard_quarantine.encode("job", shards), "here") == shards


def test_a_rank_that_fails_again_in_the_same_attempt_is_one_failure() -> None:
    shards: shard_quarantine.Shards = {}
    for time in (1.0, 3.0, 2.0):
        shard_quarantine.add_failure(shards, "x", Failure(rank=0, attempt=0, time=time))

    assert shards["x"].failures == (Failure(rank=0, attempt=0, time=3.0),)


def test_a_released_shard_is_off_the_list_until_it_is_put_there_again() -> None:
    shard = Shard(failures=(Failure(rank=0, attempt=0, time=1.0),), quarantined=5.0)
    assert shard.is_listed

    released = shard_quarantine._merged(shard, Shard(released=6.0))
    assert not released.is_listed
    assert released.counting() == []

    assert shard_quarantine._merged(released, Shard(quarantined=7.0)).is_listed


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("s3://bucket/part-1.tar", "s3://bucket/part-1.tar"),
        ("https://user:secret@host/a.tar?X-Amz-Signature=abc#frag", "https://host/a.tar"),
        ("/data//x/../part-1.tar", "/data/part-1.tar"),
        ("file:///data/part-1.tar", "/data/part-1.tar"),
        ("file:/data/part-1.tar", "/data/part-1.tar"),
        ("pipe:aws s3 cp 's3://bucket/part-1.tar' -", "s3://bucket/part-1.tar"),
        ("pipe:curl -s -H 'Authorization: Bearer secret' 'https://host/a.tar?token=secret'", "https://host/a.tar"),
        ("pipe: cat /data/part-1.tar", "/data/part-1.tar"),
        (Path("/data/part-1.tar"), "/data/part-1.tar"),
    ],
)
def test_a_shard_has_one_name_without_secrets(given: str | Path, name: str) -> None:
    assert shard_name(given) == name


def test_a_command_without_url_or_path_is_told_apart_but_not_shown() -> None:
    one, other = shard_name("pipe:fetch --token secret a"), shard_name("pipe:fetch --token secret b")
    assert one != other
    assert one.startswith("pipe:fetch#")
    assert "secret" not in one


@given(st.text(max_size=2000))
def test_a_name_names_itself_and_is_short(text: str) -> None:
    name = shard_name(text)
    assert shard_name(name) == name
    assert len(name) <= shard_quarantine.MAX_NAME


def test_a_loader_leaves_out_what_is_listed_however_the_url_is_signed() -> None:
    urls = ["https://host/a.tar?sig=1", "https://host/b.tar?sig=2"]
    assert shard_quarantine.without_shards(urls, frozenset({"https://host/b.tar"})) == urls[:1]


def test_a_list_is_written_whole(tmp_path: Path) -> None:
    path = shard_quarantine.path_of(tmp_path, "job")
    assert shard_quarantine.load(path) == {}, "one that is not there is empty"
    shard_quarantine.save(path, "job", {"x": Shard(quarantined=1.0)})

    assert shard_quarantine.listed_names(shard_quarantine.load(path)) == {"x"}
    assert [entry.name for entry in path.parent.iterdir()] == ["job.json"]


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = shard_quarantine.path_of(tmp_path / "spool", "daemon")
    path.parent.parent.mkdir()
    path.parent.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(TachoscopeError, match="could not write"):
        shard_quarantine.save(path, "daemon", {"x": Shard(quarantined=1.0)})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_every_user_can_keep_lists_and_none_can_replace_anothers(tmp_path: Path) -> None:
    path = shard_quarantine.path_of(tmp_path / "spool", "job")
    shard_quarantine.save(path, "job", {})
    assert path.parent.stat().st_mode & 0o7777 == 0o1777
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_list_of_another_user_is_not_believed(tmp_path: Path) -> None:
    path = shard_quarantine.path_of(tmp_path, "job")
    shard_quarantine.save(path, "job", {"x": Shard(quarantined=1.0)})
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, 4711, 4711)

    with pytest.raises(TachoscopeError, match="belongs to user 4711"):
        shard_quarantine.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"job": 1}', b'{"job": "a", "shards": {"x": {"failures": 3}}}', b"\xff"])
def test_what_is_no_list_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.json").write_bytes(content)
    with pytest.raises(TachoscopeError, match="list.json is not a quarantine list"):
        shard_quarantine.load(tmp_path / "list.json")


def test_a_job_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="not usable"):
        shard_quarantine.path_of(tmp_path, "../other")
