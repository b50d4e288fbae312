"""Machine code kept on disk: found again, never believed when damaged, never kept where others may write."""

from __future__ import annotations

import ctypes
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.codegen.llvm import object_cache
from runtime.codegen.llvm.jit import CodegenError, Jit
from runtime.codegen.llvm.object_cache import ObjectCache, key_of
from runtime.codegen.llvm.private_folder import PrivateFolder

IR = "define i64 @answer() {\n  ret i64 42\n}"


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    opened = ObjectCache.opened(tmp_path / "a" / "objects")
    assert opened is not None
    return opened


def answer(jit: Jit) -> int:
    code = jit.compile(IR, ("answer",))
    return int(code.function("answer", ctypes.c_int64)())


def test_code_is_compiled_once(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Jit()
    first.cache = cache
    assert answer(first) == 42
    assert len(list(cache.folder.iterdir())) == 1
    second = Jit()
    second.cache = cache
    monkeypatch.setattr(second.compiler, "emit", lambda *_: pytest.fail("compiled again"))
    assert answer(second) == 42


@pytest.mark.parametrize("damage", [b"", b"short", b"spmd-object 2\n" + b"x" * 100])
def test_a_damaged_file_counts_as_absent(cache: ObjectCache, damage: bytes) -> None:
    jit = Jit()
    jit.cache = cache
    answer(jit)
    (path,) = cache.folder.iterdir()
    path.write_bytes(damage)
    assert cache.get(path.name) is None
    assert answer(jit) == 42
    assert cache.get(path.name) is not None


def test_a_flipped_bit_is_found(cache: ObjectCache) -> None:
    cache.put("k", b"code" * 100)
    data = bytearray((cache.folder / "k").read_bytes())
    data[-1] ^= 1
    (cache.folder / "k").write_bytes(bytes(data))
    assert cache.get("k") is None


def test_links_are_not_followed(cache: ObjectCache, tmp_path: Path) -> None:
    cache.put("k", b"code")
    elsewhere = tmp_path / "elsewhere"
    (cache.folder / "k").rename(elsewhere)
    (cache.folder / "k").symlink_to(elsewhere)
    assert cache.get("k") is None


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o720])
def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "objects"
    folder.mkdir()
    folder.chmod(mode)
    assert ObjectCache.opened(folder) is None


def test_a_folder_that_cannot_be_made_or_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert ObjectCache.opened(tmp_path / "file" / "objects") is None
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    assert ObjectCache.opened(tmp_path / "link") is None


def test_a_new_folder_is_the_users_alone(cache: ObjectCache) -> None:
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_ranks_that_start_at_once_make_one_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            folder = tmp_path / str(number) / "a" / "objects"
            opened = list(pool.map(ObjectCache.opened, [folder] * 8))
            assert [cache and cache.folder for cache in opened] == [folder] * 8


def test_a_folder_that_vanishes_costs_time_alone(cache: ObjectCache) -> None:
    assert cache.claim("k")
    shutil.rmtree(cache.folder)
    assert cache.awaited("k") is None
    cache.put("k", b"code")
    cache.release("k")
    cache.trim()
    assert cache.get("k") is None
    assert cache.claim("k"), "nobody else can make it there"


def test_trim_drops_what_was_unused_longest_and_what_was_left_half_written(
    cache: ObjectCache,
) -> None:
    for number in range(8):
        cache.put(f"k{number}", bytes(1000))
        os.utime(cache.folder / f"k{number}", (number, number))
    (cache.folder / "k9.1.ab").write_bytes(b"half")
    os.utime(cache.folder / "k9.1.ab", (0, 0))
    cache.trim(most=1 << 20)
    assert len(list(cache.folder.iterdir())) == 8
    cache.trim(most=6000)
    assert sorted(path.name for path in cache.folder.iterdir()) == ["k6", "k7"]


def test_a_start_does_not_look_at_all_that_is_kept(
    cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[PrivateFolder] = []
    monkeypatch.setattr(PrivateFolder, "files", lambda self: looked.append(self) or iter(()))
    assert ObjectCache.opened(cache.folder) is not None
    assert not looked, "every rank of every job would, for as long as it takes to import NumPy"


def test_the_folder_is_trimmed_by_who_puts_as_often_as_it_grows(
    cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    drawn = iter([0, 999, 1000, 1100, 5000, 1 << 23])
    monkeypatch.setattr(object_cache.secrets, "randbelow", lambda _: next(drawn))
    monkeypatch.setattr(ObjectCache, "trim", lambda _: trimmed.append(len(trimmed)))
    for number in range(6):
        cache.put(f"k{number}", bytes(1000))  # and a header
    assert len(trimmed) == 3


def test_keys_depend_on_every_part_and_on_where_it_ends() -> None:
    assert (
        len({key_of(("a", "b")), key_of(("ab",)), key_of(("a", "b", "")), key_of(("b", "a"))}) == 4
    )


def test_what_one_claims_the_other_waits_for(cache: ObjectCache) -> None:
    assert cache.claim("k")
    assert not cache.claim("k")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.awaited, "k")
        cache.put("k", b"code")
        cache.release("k")
        assert waiting.result() == b"code"
    assert cache.claim("k"), "it was released"
    cache.release("k")
    assert [path.name for path in cache.folder.iterdir()] == ["k"]


def test_who_claims_and_gives_up_or_ends_is_not_waited_for(cache: ObjectCache) -> None:
    assert cache.awaited("k") is None
    assert cache.claim("k")
    claim = cache.folder / "k.claim"
    os.utime(claim, (0, claim.stat().st_mtime - 60))
    assert cache.awaited("k") is None
    assert cache.claim("k")


def test_two_processes_make_each_kernel_once(
    cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    jits = [Jit(), Jit()]
    for jit in jits:
        jit.cache = cache
        emit = jit.compiler.emit
        monkeypatch.setattr(
            jit.compiler, "emit", lambda ir, passes, own=emit: made.append(ir) or own(ir, passes)
        )
    kernels = [IR.replace("42", str(n)) for n in range(20)]
    codes = [[jit.compile(ir, ("answer",)) for ir in kernels] for jit in jits]
    for own in codes:
        found = [code.function("answer", ctypes.c_int64)() for code in own]
        assert found == list(range(20))
    assert sorted(made) == sorted(kernels)


def test_code_that_cannot_be_made_is_refused_and_its_claim_released(cache: ObjectCache) -> None:
    jit = Jit()
    jit.cache = cache
    for _ in range(2):
        with pytest.raises(CodegenError, match="LLVM refuses"):
            jit.compile("define i64 @answer(", ("answer",)).address("answer")
    assert not list(cache.folder.iterdir())


def test_an_entry_under_another_key_counts_as_absent(cache: ObjectCache) -> None:
    cache.put("k1", b"code of k1")
    cache.put("k2", b"code of k2")
    (cache.folder / "k1").rename(cache.folder / "moved")
    (cache.folder / "k2").rename(cache.folder / "k1")
    (cache.folder / "moved").rename(cache.folder / "k2")
    assert cache.get("k1") is None
    assert cache.get("k2") is None


def test_functions_of_entries_that_changed_places_stay_what_they_are(cache: ObjectCache) -> None:
    def answers() -> list[int]:
        jit = Jit()
        jit.cache = cache
        codes = [jit.compile(IR.replace("42", str(n)), ("answer",)) for n in range(2)]
        return [code.function("answer", ctypes.c_int64)() for code in codes]

    assert answers() == [0, 1]
    one, other = cache.folder.iterdir()
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    assert answers() == [0, 1]


@pytest.mark.parametrize("wrong", [b"no object file", "another function's"])
def test_an_entry_that_does_not_link_is_compiled_again(
    cache: ObjectCache, wrong: bytes | str
) -> None:
    jit = Jit()
    jit.cache = cache
    if isinstance(wrong, str):
        jit.compile(IR.replace("answer", "other"), ("other",)).address("other")
        (path,) = cache.folder.iterdir()
        found = cache.get(path.name)
        assert found is not None
        path.unlink()
        wrong = found
    assert answer(jit) == 42
    (path,) = cache.folder.iterdir()
    right = cache.get(path.name)
    cache.put(path.name, wrong)
    assert cache.get(path.name) == wrong
    again = Jit()
    again.cache = cache
    assert answer(again) == 42
    assert cache.get(path.name) == right, "it is put in its place"


def test_code_that_never_links_is_a_defect_with_a_message() -> None:
    ir = "declare i64 @nowhere_to_be_found()\n" + IR.replace(
        "ret i64 42", "%a = call i64 @nowhere_to_be_found()\n  ret i64 %a"
    )
    with pytest.raises(CodegenError, match="does not link generated code"):
        Jit().compile(ir, ("answer",)).address("answer")
