"""A folder of files that only this user can have written: who could exchange it, and what is not read from it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from runtime.codegen.llvm.private_folder import PrivateFolder

MOST = 1 << 10


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = tmp_path / "parent"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(parent: Path) -> PrivateFolder:
    opened = PrivateFolder.open(parent / "own")
    assert opened is not None
    return opened


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o722])
def test_a_parent_that_others_may_write_to_is_refused(parent: Path, mode: int) -> None:
    (parent / "own").mkdir(mode=0o700)
    (parent / "a").mkdir()
    parent.chmod(mode)
    assert PrivateFolder.open(parent / "own") is None
    assert PrivateFolder.open(parent / "a" / "b" / "own") is None, "nor higher above"
    assert not (parent / "a" / "b").exists(), "nothing is made there"


@pytest.mark.parametrize("mode", [0o1777, 0o1775, 0o755, 0o711, 0o700])
def test_a_parent_in_which_others_cannot_rename_is_taken(parent: Path, mode: int) -> None:
    parent.chmod(mode)
    assert PrivateFolder.open(parent / "own") is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a folder to another user")
def test_another_users_folder_or_link_on_the_way_is_refused(parent: Path) -> None:
    (parent / "own").mkdir(mode=0o700)
    os.chown(parent, 65534, 65534)
    assert PrivateFolder.open(parent / "own") is None
    parent.chmod(0o1777)
    assert PrivateFolder.open(parent / "own") is None, "a sticky folder's owner may rename"
    os.chown(parent, 0, 0)
    assert PrivateFolder.open(parent / "own") is not None
    (parent / "link").symlink_to(parent / "own")
    os.chown(parent / "link", 65534, 65534, follow_symlinks=False)
    assert PrivateFolder.open(parent / "link" / "inner") is None


def test_links_on_the_way_are_followed_under_the_same_rules(parent: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("parent/../parent")
    opened = PrivateFolder.open(tmp_path / "link" / "own")
    assert opened is not None
    opened.write("k", b"data")
    assert (parent / "own" / "k").read_bytes() == b"data"
    parent.chmod(0o777)
    assert PrivateFolder.open(tmp_path / "link" / "own") is None
    (tmp_path / "absolute").symlink_to(parent)
    assert PrivateFolder.open(tmp_path / "absolute" / "own") is None
    (tmp_path / "circle").symlink_to("circle")
    assert PrivateFolder.open(tmp_path / "circle" / "own") is None


def test_a_folder_that_is_exchanged_later_is_not_read(folder: PrivateFolder, parent: Path) -> None:
    folder.write("k", b"ours")
    folder.path.rename(parent / "moved")
    folder.path.mkdir(mode=0o700)
    (folder.path / "k").write_bytes(b"not ours")
    assert folder.read("k", MOST) == b"ours"
    folder.write("new", b"data")
    assert (parent / "moved" / "new").read_bytes() == b"data"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_read(folder: PrivateFolder, mode: int) -> None:
    folder.write("k", b"data")
    assert folder.read("k", MOST) == b"data"
    (folder.path / "k").chmod(mode)
    assert folder.read("k", MOST) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file to another user")
def test_a_file_of_another_user_is_not_read(folder: PrivateFolder) -> None:
    folder.write("k", b"data")
    os.chown(folder.path / "k", 65534, 65534)
    assert folder.read("k", MOST) is None


def test_what_is_no_regular_file_is_not_read(folder: PrivateFolder) -> None:
    os.mkfifo(folder.path / "fifo", 0o600)
    assert folder.read("fifo", MOST) is None
    (folder.path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        folder.read("folder", MOST)
    folder.write("k", b"data")
    (folder.path / "link").symlink_to("k")
    with pytest.raises(OSError, match="symbolic links"):
        folder.read("link", MOST)


def test_files_are_the_users_alone_whatever_the_mask(folder: PrivateFolder) -> None:
    before = os.umask(0)
    try:
        folder.write("k", bytes(MOST))
        folder.create("claim")
    finally:
        os.umask(before)
    assert {about.st_mode & 0o777 for about, _ in folder.files()} == {0o600}
    assert folder.read("k", MOST) == bytes(MOST)
    assert folder.read("k", MOST - 1) is None


def test_a_write_that_fails_leaves_what_was_there(folder: PrivateFolder) -> None:
    (folder.path / "k").mkdir()
    with pytest.raises(OSError, match="directory"):
        folder.write("k", b"data")
    assert [name for _, name in folder.files()] == ["k"]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.usefixtures("own_objects_alone_are_collected")
def test_the_descriptor_is_closed_with_the_folder(parent: Path) -> None:
    before = descriptors()
    opened = PrivateFolder.open(parent / "own")
    assert descriptors() == before + 1
    del opened
    parent.chmod(0o777)
    assert PrivateFolder.open(parent / "own") is None
    gc.collect()
    assert descriptors() == before
