"""Programs that were compiled before: found by all that decides, never believed when damaged, the same as afresh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi_available import needs_mpi

import spmd
from launch.cache import cache_folder, compile_afresh, compile_cached, program_cache
from launch.cache import digest as digests
from launch.cache.compile_cached import compile_source
from launch.cache.program_cache import Entry, ProgramCache, program_key
from launch.entry import Compiled
from launch.options import CompileOptions
from launch.source import ModuleSource, source_of
from runtime.codegen.llvm import object_cache
from runtime.codegen.llvm.object_cache import ObjectCache
from runtime.saved import save_bytes

TEXT = """HloModule small, num_partitions=2
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
  y = f32[8,4] exponential(x)
  ROOT z = f32[8,4] add(x, y), sharding={devices=[2,1]<=[2]}
}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramCache:
    """Return a cache on the folder from which this process takes programs."""
    store = ObjectCache.opened(tmp_path / "objects")
    assert store is not None
    monkeypatch.setattr(compile_cached, "program_cache", lambda: ProgramCache(store))
    return ProgramCache(store)


@pytest.fixture
def source(tmp_path: Path) -> ModuleSource:
    path = tmp_path / "small.hlo"
    path.write_text(TEXT)
    return source_of(str(path))


def never(*_: object) -> None:
    pytest.fail("compiled again")


def kept(cache: ProgramCache) -> Path:
    (path,) = cache.store.folder.iterdir()
    return path


def test_a_program_is_compiled_once(
    cache: ProgramCache, source: ModuleSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_source(source, None, CompileOptions())
    assert not first.cached
    monkeypatch.setattr(compile_afresh, "compile_module", never)
    unread = replace(source, read=lambda: pytest.fail("read again"))
    again = compile_source(unread, None, CompileOptions())
    assert again.cached
    assert save_bytes(again.executable) == save_bytes(first.executable) == again.saved
    assert again.executable.dump_thunks() == first.executable.dump_thunks()
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    assert again.executable.run(x)[0].tobytes() == first.executable.run(x)[0].tobytes()


def test_a_program_is_stored_while_it_is_loaded(
    cache: ProgramCache, source: ModuleSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads make its machine code then, and the first one would wait."""
    first = compile_source(source, None, CompileOptions(), stored_later=True)
    assert first.saved is None
    assert not list(cache.store.folder.iterdir())
    first.executable.load_devices()
    path = kept(cache)
    path.unlink()
    first.executable.load_devices()
    assert not path.exists(), "once is enough"
    again = compile_source(source, None, CompileOptions(), stored_later=True)
    assert not again.cached
    again.executable.load_devices()
    assert compile_source(source, None, CompileOptions()).cached


def test_a_module_without_a_file_is_found_by_what_it_holds(cache: ProgramCache) -> None:
    def compile_parsed(text: str) -> Compiled:
        return compile_source(ModuleSource(lambda: spmd.parse(text)), None, CompileOptions())

    assert not compile_parsed(TEXT).cached
    assert compile_parsed(TEXT).cached
    assert not compile_parsed(TEXT.replace("add", "subtract")).cached


def test_the_key_is_of_all_that_decides(
    source: ModuleSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CompileOptions()
    keys = [
        program_key(source.digest, None, options),
        program_key(source.digest + "0", None, options),
        program_key(source.digest, 2, options),
        program_key(source.digest, None, replace(options, fusion=not options.fusion)),
        program_key(source.digest, None, replace(options, memory_limit=1 << 20)),
        program_key(source.digest, None, replace(options, partitioned=True)),
    ]
    for name, value in (
        ("versions", lambda: {"spmd-executor version": "999"}),
        ("sources_digest", str),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(program_cache, name, value)
            program_cache._compiler.cache_clear()
            keys.append(program_key(source.digest, None, options))
    program_cache._compiler.cache_clear()
    assert len(set(keys)) == len(keys)
    assert program_key(source.digest, None, CompileOptions()) == keys[0]


def test_sources_are_told_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "worked_on" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "worked_on" / "__init__.py").write_text("")
    (inner / "a.py").write_text("one")
    monkeypatch.setattr(digests, "_ROOT", tmp_path)
    monkeypatch.setattr(digests, "_PACKAGES", ("worked_on",))
    digest = digests.sources_digest.__wrapped__
    before = digest()
    (inner / "a.pyc").write_text("not a source")
    assert digest() == before
    (inner / "a.py").write_text("another")
    assert digest() != before
    assert "worked_on" not in sys.modules


def test_what_compiling_warns_of_is_said_again(
    cache: ProgramCache, source: ModuleSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_afresh, "costly_warning", lambda _: "spmd: warning: 3 µs\n")
    for cached in (False, True):
        done = compile_source(source, None, CompileOptions())
        assert (done.warning, done.cached) == ("spmd: warning: 3 µs\n", cached)


@pytest.mark.parametrize("damage", ["short", "flipped", "empty", "other magic"])
def test_a_damaged_entry_is_compiled_afresh(
    cache: ProgramCache, source: ModuleSource, damage: str
) -> None:
    first = compile_source(source, None, CompileOptions())
    path = kept(cache)
    data = path.read_bytes()
    flipped = bytes([*data[:-50], data[-50] ^ 1, *data[-49:]])
    damaged = {"short": data[:-1], "flipped": flipped, "empty": b"", "other magic": b"x" + data}
    path.write_bytes(damaged[damage])
    again = compile_source(source, None, CompileOptions())
    assert not again.cached
    assert save_bytes(again.executable) == save_bytes(first.executable)
    assert compile_source(source, None, CompileOptions()).cached


@pytest.mark.parametrize("entry", [b"", b"5", b"-1\n", b"0\nno archive", b"99999\n", b"x\ny"])
def test_an_entry_that_does_not_load_is_compiled_afresh(
    cache: ProgramCache, source: ModuleSource, entry: bytes
) -> None:
    compile_source(source, None, CompileOptions())
    cache.store.put(kept(cache).name, entry)  # whole, as its digest goes
    assert not compile_source(source, None, CompileOptions()).cached
    assert compile_source(source, None, CompileOptions()).cached


def test_programs_to_be_checked_are_compiled(cache: ProgramCache, source: ModuleSource) -> None:
    for _ in range(2):
        assert not compile_source(source, None, CompileOptions(check=True)).cached


def test_writers_do_not_disturb_each_other(cache: ProgramCache, source: ModuleSource) -> None:
    entry = Entry(save_bytes(compile_source(source, None, CompileOptions()).executable), "w")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cache.put("k", entry), range(16)))
        found = list(pool.map(lambda _: cache.load("k"), range(4)))
    assert all(one is not None and one[1].warning == "w" for one in found)
    assert not [path for path in cache.store.folder.iterdir() if "." in path.name], "half-written"


def test_the_folder_does_not_grow_beyond_its_bound(
    cache: ProgramCache, source: ModuleSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Entry(save_bytes(compile_source(source, None, CompileOptions()).executable), "")
    size = kept(cache).stat().st_size
    monkeypatch.setattr(ObjectCache.trim, "__defaults__", (size * 4,))
    monkeypatch.setattr(object_cache, "_BYTES_BETWEEN_SCANS", 1)
    for number in range(12):
        cache.put(f"k{number}", entry)
    assert sum(path.stat().st_size for path in cache.store.folder.iterdir()) <= size * 4 + 64
    assert cache.get("k11") is not None


def test_the_environment_may_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened = ObjectCache.opened(tmp_path / "objects")
    monkeypatch.setattr(program_cache, "keep_objects", lambda: opened)
    assert program_cache.program_cache({"SPMD_PROGRAM_CACHE": "off"}) is None
    assert program_cache.program_cache({}) is not None
    monkeypatch.setattr(program_cache, "keep_objects", lambda: None)
    assert program_cache.program_cache({}) is None


def bench(folder: Path, module: Path, *launcher: str) -> dict[str, object]:
    command = [sys.executable, "-m", "launch", *launcher, "bench", str(module)]
    environment = {k: v for k, v in os.environ.items() if k != "SPMD_PROGRAM_CACHE"}
    environment[cache_folder.VARIABLE] = str(folder)
    done = subprocess.run(
        [*command, "--repeat", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, object] = json.loads(done.stdout)
    return figures


@pytest.fixture(scope="module")
def benched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with what one process has compiled, and the module that it compiled."""
    path = tmp_path_factory.mktemp("benched")
    folder, module = path / "c", path / "small.hlo"
    module.write_text(TEXT)
    assert bench(folder, module)["cached"] is False
    return folder, module


def copied(folder: Path, to: Path) -> Path:
    """Return a copy of the folder, with which a test may do what it likes."""
    shutil.copytree(folder, to)
    return to


def test_bench_says_whether_the_program_was_compiled(
    benched: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, module = benched
    assert bench(folder, module)["cached"] is True
    shared = copied(folder, tmp_path / "c")
    shared.chmod(0o770)  # others may write here
    assert bench(shared, module)["cached"] is False


@needs_mpi
def test_ranks_take_what_their_first_finds(benched: tuple[Path, Path], tmp_path: Path) -> None:
    folder, module = benched
    ranks = ("launch", "-n", "2", "--")
    assert bench(folder, module, *ranks)["cached"] is True, "ranks run the program of one process"
    damaged = copied(folder, tmp_path / "c")
    for path in damaged.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert bench(damaged, module, *ranks)["cached"] is False
