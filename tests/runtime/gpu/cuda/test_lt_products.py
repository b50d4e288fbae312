"""What is asked of cuBLASLt for products of f8, and which of its algorithms is taken."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.gpu.libraries.gemm import GemmCall, gemm_calls
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.cuda.cupy_double import CupyDouble, cupy_double

F8, F32 = PrimitiveType.F8E4M3FN, PrimitiveType.F32
WORKSPACE = 4096, 1 << 20
ADDRESSES = 256, 512, 768


def algorithm(number: int) -> bytes:
    return bytes([number]) * 64


@pytest.fixture
def cupy() -> Iterator[CupyDouble]:
    with cupy_double() as double:
        yield double


class Lt:
    """The library: what is called, in order, with ``algorithms`` as its candidates."""

    def __init__(self, algorithms: list[int]) -> None:
        self.algorithms, self.calls = algorithms, list[tuple[Any, ...]]()

    def call(self, _: object, function: str, *arguments: Any) -> None:
        self.calls.append((function, *arguments))
        if function == "cublasLtMatmulAlgoGetHeuristic":
            *_, most, found, count = arguments
            assert most >= len(self.algorithms)
            for one, number in zip(found, self.algorithms, strict=False):
                one.algorithm[:] = list(algorithm(number))
            count._obj.value = len(self.algorithms)

    def library(self) -> SimpleNamespace:
        ended = {
            f"cublasLt{kind}Destroy": lambda _: 0
            for kind in ("", "MatmulDesc", "MatrixLayout", "MatmulPreference")
        }
        return SimpleNamespace(**ended)

    def named(self, function: str) -> list[tuple[Any, ...]]:
        return [arguments for name, *arguments in self.calls if name == f"cublasLt{function}"]


@pytest.fixture
def lt(cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch) -> Lt:
    made = Lt([1, 2, 3])
    for name in ("lt_product", "lt_products"):
        module = importlib.import_module(f"runtime.gpu.cuda.{name}")
        monkeypatch.setattr(module, "call", made.call)
    monkeypatch.setattr(module, "load_cublas_lt", made.library)
    return made


def products() -> Any:
    return importlib.import_module("runtime.gpu.cuda.lt_products").LtProducts(WORKSPACE)


def product(kind: PrimitiveType, size: int, batch: tuple[int, ...] = ()) -> GemmCall:
    kernel = DotKernel(batch, size, size, size, kind, kind, F32, F32)
    lhs = StridedView.dense(ArrayShape(kind, (*batch, size, size)))
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    rhs = StridedView.dense_in_order(ArrayShape(kind, (*batch, size, size)), order)
    out = StridedView.dense(ArrayShape(F32, (*batch, size, size)))
    calls = gemm_calls(kernel, lhs, rhs, out)
    assert calls is not None
    (one,) = calls
    return one


def run_algorithm(found: Any) -> bytes:
    taken: bytes = found.args[-3]
    return taken


def test_the_first_candidate_is_taken(lt: Lt) -> None:
    made = products()
    found = made.load(product(F8, 64), ADDRESSES)
    assert run_algorithm(found) == algorithm(1)
    lt.algorithms = []
    with pytest.raises(Exception, match="no algorithm for 64x64x64x1 f8e4m3fn,f8e4m3fn>f32"):
        made.load(product(F8, 64), ADDRESSES)


def test_descriptors_and_the_call(lt: Lt) -> None:
    """Columns of f8: a is stored with its depth fastest and is transposed; b is not. Batches have steps."""
    run = products().load(product(F8, 64, (3,)), ADDRESSES)
    layouts = [
        (kind, rows, columns, step)
        for _, kind, rows, columns, step in lt.named("MatrixLayoutCreate")
    ]
    assert layouts == [(28, 64, 64, 64), (28, 64, 64, 64), (0, 64, 64, 64)]
    turned = [
        (number, value._obj.value) for _, number, value, _ in lt.named("MatmulDescSetAttribute")
    ]
    assert turned == [(3, 1), (4, 0)]
    batches = [
        (number, value._obj.value) for _, number, value, _ in lt.named("MatrixLayoutSetAttribute")
    ]
    assert batches == [(5, 3), (6, 64 * 64)] * 3
    wanted = {n: value._obj.value for _, n, value, _ in lt.named("MatmulPreferenceSetAttribute")}
    assert wanted == {1: 1 << 20, 3: 2, 5: 256, 6: 256, 7: 256, 8: 256}
    run(7)
    ((*arguments,),) = lt.named("Matmul")
    _, _, _, a, _, b, _, _, c, _, d, _, chosen, workspace, num_bytes, stream = arguments
    assert (a, b, c, d, stream) == (256, 512, 768, 768, 7)
    assert (chosen, workspace, num_bytes) == (algorithm(1), *WORKSPACE)
