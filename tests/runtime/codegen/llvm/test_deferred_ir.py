"""IR that is not written if its machine code is in a cache."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import pytest

from runtime.codegen.elements import variants
from runtime.codegen.llvm.jit import DeferredIr, Jit, NativeLibrary
from runtime.codegen.llvm.object_cache import ObjectCache
from runtime.cpu.kernels.rows import rows

WRITTEN: list[int] = []


def number_ir(number: int) -> str:
    WRITTEN.append(number)
    return f"define i64 @number() {{\n  ret i64 {number}\n}}"


def compiled(jit: Jit, number: int) -> int:
    code = jit.compile(DeferredIr(__name__, "number_ir", (number,)), ("number",))
    return called(code)


def called(code: NativeLibrary) -> int:
    return int(code.function("number", ctypes.c_int64)())


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    WRITTEN.clear()
    opened = ObjectCache.opened(tmp_path / "objects")
    assert opened is not None
    return opened


def jit_with(cache: ObjectCache | None, sources: str | None = "now") -> Jit:
    jit = Jit()
    jit.cache, jit.sources = cache, sources
    return jit


def test_ir_is_written_once_for_each_variant(cache: ObjectCache) -> None:
    for _ in range(2):
        assert [compiled(jit_with(cache), number) for number in (1, 2)] == [1, 2]
    assert WRITTEN == [1, 2]


@pytest.mark.parametrize("sources", ["edited", None])
def test_other_sources_write_it_again(cache: ObjectCache, sources: str | None) -> None:
    compiled(jit_with(cache), 1)
    jit = jit_with(cache, sources)
    for _ in range(2):
        compiled(jit, 1)
    assert ([1, 1, 1] if sources is None else [1, 1]) == WRITTEN


def test_entries_that_are_lost_are_made_again(cache: ObjectCache) -> None:
    """The variant's entry, which names the code, and the code."""
    compiled(jit_with(cache), 7)
    paths = sorted(cache.folder.iterdir())
    assert len(paths) == 2
    for lost in itertools.chain.from_iterable(itertools.combinations(paths, n) for n in (1, 2)):
        for path in lost:
            path.unlink()
        assert compiled(jit_with(cache), 7) == 7
        assert sorted(cache.folder.iterdir()) == paths


def test_code_of_a_trusted_file_needs_no_ir(cache: ObjectCache) -> None:
    writer = jit_with(None)
    writer.collected = {}
    compiled(writer, 3)
    reader = jit_with(None)
    reader.trusted_code.update({key: get() for key, get in writer.collected.items()})
    assert compiled(reader, 3) == 3
    assert WRITTEN == [3]


def test_listings_have_the_ir(cache: ObjectCache) -> None:
    for _ in range(2):
        jit = jit_with(cache)
        jit.keeps_sources = True
        code = jit.compile(DeferredIr(__name__, "number_ir", (5,)), ("number",))
        assert code.source is not None
        assert "ret i64 5" in code.source[0]


def test_rows_have_as_many_lanes_as_the_shortest_vector_variant() -> None:
    """The number is stated twice: a run of cached code imports no module that writes IR."""
    assert min(variants.LANES) == rows.FEWEST
