"""The tile unit is asked for once, and can be done without."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace

import pytest

from benchmarks.native.tile_unit_off import without_tile_unit
from runtime.cpu.kernels.gemm import tile_unit
from runtime.cpu.kernels.gemm.tile_unit import Unit, has_tile_unit, narrow_unit
from runtime.cpu.libraries.blas import gemm_function
from spmd.shape import PrimitiveType


def test_without_it_products_are_blass() -> None:
    if not has_tile_unit():
        pytest.skip("this processor has no tile unit, or the system does not permit its use")
    with_it = gemm_function(PrimitiveType.F32)
    with without_tile_unit():
        assert not has_tile_unit()
        assert gemm_function(PrimitiveType.F32) != with_it
    assert has_tile_unit()
    assert gemm_function(PrimitiveType.F32) == with_it


@pytest.mark.parametrize("is_float", [False, True])
def test_vectors_stand_in_for_it(is_float: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are used if the processor has instructions for vectors of these numbers."""
    known = {"avx512bw", "avx512vl", "avx512bf16" if is_float else "avx512vnni"}
    monkeypatch.setattr(tile_unit, "host_has", lambda *features: known.issuperset(features))
    monkeypatch.setattr(tile_unit, "_permitted", lambda: False)
    assert narrow_unit(is_float=is_float) is Unit.VECTORS
    assert narrow_unit(is_float=not is_float) is None
    with without_tile_unit():
        assert narrow_unit(is_float=is_float) is None
    monkeypatch.setattr(tile_unit, "_permitted", lambda: True)
    assert narrow_unit(is_float=not is_float) is Unit.TILES


def test_small_products_are_blass() -> None:
    with without_tile_unit():
        blas = gemm_function(PrimitiveType.F32)
    assert gemm_function(PrimitiveType.F32, (8, 8, 8)) == blas
    assert gemm_function(PrimitiveType.F64) == gemm_function(PrimitiveType.F64, (512, 512, 512))


@pytest.mark.parametrize("answer", [0, -1])
def test_what_the_system_answers(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def system_call(*arguments: ctypes.c_long) -> int:
        assert [argument.value for argument in arguments] == [158, 0x1023, 18]
        return answer

    monkeypatch.setattr(tile_unit, "host_has", lambda *features: "amx-tile" in features)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", machine="x86_64"))
    library = SimpleNamespace(syscall=system_call)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert tile_unit._permitted.__wrapped__() == (answer == 0)


@pytest.mark.parametrize("system", [("Linux", "aarch64"), ("Darwin", "x86_64")])
def test_no_such_system_call_elsewhere(
    system: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(name: str | None) -> None:
        raise AssertionError("nothing is to be asked")

    monkeypatch.setattr(ctypes, "CDLL", forbidden)
    found = SimpleNamespace(sysname=system[0], machine=system[1])
    monkeypatch.setattr(os, "uname", lambda: found)
    assert not tile_unit._permitted.__wrapped__()
