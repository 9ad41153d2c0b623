"""Against repositories that git itself made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tachoscope.lineage.git_commit import repository_of


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "train").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch", "main")
    (root / "train" / "main.py").write_text("pass\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "one")
    return root


def agrees(root: Path, script: Path) -> None:
    found = repository_of(script)
    assert found is not None
    assert (found.root, found.commit) == (root, git(root, "rev-parse", "HEAD"))


def test_the_commit_of_a_branch_is_found(repository: Path) -> None:
    agrees(repository, repository / "train" / "main.py")


def test_a_packed_branch_is_found(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "feature/x")
    git(repository, "tag", "feature")
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "feature" / "x").exists()
    agrees(repository, repository / "train" / "main.py")


def test_a_newer_commit_of_a_packed_branch_counts(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "two")
    agrees(repository, repository / "train" / "main.py")


def test_a_detached_head_is_found(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    agrees(repository, repository / "train" / "main.py")


def test_a_worktree_has_its_own_commit(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "tree"))
    git(tmp_path / "tree", "commit", "--quiet", "--allow-empty", "--message", "two")
    agrees(tmp_path / "tree", tmp_path / "tree" / "train" / "main.py")
    git(repository, "pack-refs", "--all")
    agrees(tmp_path / "tree", tmp_path / "tree" / "train" / "main.py")


def test_a_submodule_is_a_repository_of_its_own(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "--quiet")
    git(outer, "submodule", "--quiet", "add", str(repository), "inner")
    agrees(outer / "inner", outer / "inner" / "train" / "main.py")


def test_without_a_repository_or_a_commit_nothing_is_said(tmp_path: Path) -> None:
    assert repository_of(tmp_path / "train.py") is None
    git(tmp_path, "init", "--quiet")
    assert repository_of(tmp_path / "train.py") is None


@pytest.mark.parametrize("head", ["", "ref: ../../../secret", "ref: refs/heads/.invalid", "ref: HEAD", "not a commit", "\xff"])
def test_a_head_that_says_nothing_is_no_commit(tmp_path: Path, head: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(head.encode("latin-1"))
    assert repository_of(tmp_path / "train.py") is None
