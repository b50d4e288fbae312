"""Tests of the calls of cuBLASLt, and of which of its algorithms is taken."""

from __future__ import annotations

import ctypes
import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.target.engine_choice import EPILOGUES_VARIABLE
from runtime.gpu.captures import CaptureLock
from runtime.gpu.libraries.gemm import CallEpilogue, GemmCall, gemm_calls
from runtime.gpu.libraries.tuning import Tuning
from runtime.gpu.views import DeviceView
from runtime.gpu.work import GemmWork
from runtime.program.gemm_epilogue import Activation
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.cuda.cupy_double import CupyDouble, cupy_double

BF16, F8, F32 = PrimitiveType.BF16, PrimitiveType.F8E4M3FN, PrimitiveType.F32
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
        self.refused: set[bytes] = set()

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
        return SimpleNamespace(
            **ended,
            cublasLtGetVersion=lambda: 130100,
            cublasLtMatmulAlgoCheck=lambda *arguments: int(arguments[6] in self.refused),
        )

    def named(self, function: str) -> list[tuple[Any, ...]]:
        return [arguments for name, *arguments in self.calls if name == f"cublasLt{function}"]


@pytest.fixture
def lt(cupy: CupyDouble, monkeypatch: pytest.MonkeyPatch) -> Lt:
    made = Lt([1, 2, 3])
    for name in ("lt_product", "tuned_products"):
        module = importlib.import_module(f"runtime.gpu.cuda.{name}")
        monkeypatch.setattr(module, "call", made.call)
    monkeypatch.setattr(module, "load_cublas_lt", made.library)
    return made


def products(
    monkeypatch: pytest.MonkeyPatch, tuning: Tuning, times: dict[bytes | None, float]
) -> Any:
    """cuBLASLt on which algorithms, and the default (None), take these times."""
    module = importlib.import_module("runtime.gpu.cuda.tuned_products")

    def time(_: object, run: Any) -> float:
        return times[run.args[-3] if hasattr(run, "args") else None]

    def allocate(_: int) -> SimpleNamespace:
        return SimpleNamespace(address=1 << 20)

    monkeypatch.setattr(module.TunedProducts, "_time", time)
    monkeypatch.setattr(module.TunedProducts, "_random", lambda *_: allocate(0))
    return module.TunedProducts(tuning, "a GPU", WORKSPACE, allocate, lambda *_: None)


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


def default(_: object) -> Callable[[int], None]:
    return lambda _: None


def run_algorithm(found: Any) -> bytes:
    taken: bytes = found.args[-3]
    return taken


def test_the_fastest_is_taken_and_kept(
    lt: Lt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuning.json"
    times = {None: 5.0, algorithm(1): 4.0, algorithm(2): 3.0, algorithm(3): 6.0}
    made = products(monkeypatch, Tuning(file, measures=True), times)
    found = made.load(product(BF16, 1024), ADDRESSES, default)
    assert run_algorithm(found) == algorithm(2)
    lt.calls.clear()
    again = products(monkeypatch, Tuning(file, measures=False), {})
    assert run_algorithm(again.load(product(BF16, 1024), ADDRESSES, default)) == algorithm(2)
    assert not lt.named("MatmulAlgoGetHeuristic")


def test_the_default_stays_if_nothing_is_faster(lt: Lt, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {None: 3.0, algorithm(1): 4.0, algorithm(2): 3.0, algorithm(3): 6.0}
    made = products(monkeypatch, Tuning(None, measures=True), times)
    assert made.load(product(BF16, 1024), ADDRESSES, default) is None


def test_small_products_are_not_measured(lt: Lt, monkeypatch: pytest.MonkeyPatch) -> None:
    made = products(monkeypatch, Tuning(None, measures=True), {})
    assert made.load(product(BF16, 128), ADDRESSES, default) is None


def test_a_kept_algorithm_that_the_library_refuses_is_not_run(
    lt: Lt, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {None: 5.0, algorithm(1): 4.0, algorithm(2): 3.0, algorithm(3): 6.0}
    made = products(monkeypatch, Tuning(None, measures=True), times)
    lt.refused.add(algorithm(2))
    assert made.load(product(BF16, 1024), ADDRESSES, default) is None


def test_f8_takes_the_first_candidate_if_none_was_measured(
    lt: Lt, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = products(monkeypatch, Tuning(None, measures=False), {})
    found = made.load_only_here(product(F8, 64), ADDRESSES)
    assert run_algorithm(found) == algorithm(1)
    lt.algorithms = []
    with pytest.raises(Exception, match="no algorithm for 64x64x64x1 f8e4m3fn,f8e4m3fn>f32"):
        made.load_only_here(product(F8, 64), ADDRESSES)


def test_descriptors_and_the_call(lt: Lt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of f8: a is stored with its depth fastest and is transposed; b is not. Batches have steps."""
    made = products(monkeypatch, Tuning(None, measures=False), {})
    run = made.load_only_here(product(F8, 64, (3,)), ADDRESSES)
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


EPILOGUES = {
    CallEpilogue(alpha=0.5): [],
    CallEpilogue(bias=True): [(7, 4), (8, 1024)],
    CallEpilogue(activation=Activation.RELU): [(7, 2)],
    CallEpilogue(alpha=-0.5, beta=1.0, bias=True, activation=Activation.RELU): [(7, 6), (8, 1024)],
    CallEpilogue(activation=Activation.GELU): [(7, 32)],
    CallEpilogue(bias=True, activation=Activation.GELU): [(7, 36), (8, 1024)],
    CallEpilogue(bias=True, activation=Activation.GELU, aux=True): [
        (7, 164),
        (8, 1024),
        (11, 1536),
        (12, 64),
    ],
    CallEpilogue(activation=Activation.GELU_GRADIENT, aux=True): [(7, 192), (11, 1536), (12, 64)],
}


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_descriptors_of_epilogues(
    epilogue: CallEpilogue, lt: Lt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bias and arguments of gelu are known before algorithms are asked for, which depend on their alignment."""
    made = products(monkeypatch, Tuning(None, measures=False), {})
    addend, bias = 1280 if epilogue.beta else 0, 1024 if epilogue.bias else 0
    gemm = replace(product(F32, 64), epilogue=epilogue)
    run = made.load_only_here(gemm, ADDRESSES, addend, bias, 1536 if epilogue.aux else 0)
    names = [name for name, *_ in lt.calls]
    wanted = {n: value._obj.value for _, n, value, _ in lt.named("MatmulDescSetAttribute")}
    assert wanted == {3: 1, 4: 0, **dict(EPILOGUES[epilogue])}
    last = len(names) - 1 - names[::-1].index("cublasLtMatmulDescSetAttribute")
    assert last < names.index("cublasLtMatmulAlgoGetHeuristic")
    run(7)
    ((*arguments,),) = lt.named("Matmul")
    _, _, alpha, a, _, b, _, beta, c, c_layout, d, d_layout, *_ = arguments
    scales = [ctypes.c_float.from_address(address).value for address in (alpha, beta)]
    assert scales == [epilogue.alpha, epilogue.beta]
    assert (a, b, c, d) == (256, 512, addend or 768, 768)
    assert c_layout is d_layout


@pytest.mark.parametrize(
    ("scales", "wanted"), [((2048,), {17: 2048}), ((2048, 2052), {17: 2048, 18: 2052})]
)
def test_scales_are_those_of_the_operands(
    scales: tuple[int, ...], wanted: dict[int, int], lt: Lt, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = products(monkeypatch, Tuning(None, measures=False), {})
    gemm = replace(product(F8, 64), epilogue=CallEpilogue(scales=len(scales)))
    made.load_only_here(gemm, ADDRESSES, scales=scales)
    set_ = {n: value._obj.value for _, n, value, _ in lt.named("MatmulDescSetAttribute")}
    assert {n: set_.get(n) for n in (17, 18) if n in set_} == wanted


def test_without_an_algorithm_the_error_names_the_variable(
    lt: Lt, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = products(monkeypatch, Tuning(None, measures=False), {})
    lt.algorithms = []
    gemm = replace(product(F32, 64), epilogue=CallEpilogue(activation=Activation.GELU))
    with pytest.raises(Exception, match=f"gelu; with {EPILOGUES_VARIABLE}=off"):
        made.load_only_here(gemm, ADDRESSES)


def test_batches_of_arguments_of_gelu_have_a_step(lt: Lt, monkeypatch: pytest.MonkeyPatch) -> None:
    made = products(monkeypatch, Tuning(None, measures=False), {})
    epilogue = CallEpilogue(activation=Activation.GELU, aux=True)
    made.load_only_here(replace(product(F32, 64, (3,)), epilogue=epilogue), ADDRESSES, 0, 0, 1536)
    wanted = {n: value._obj.value for _, n, value, _ in lt.named("MatmulDescSetAttribute")}
    assert {n: wanted[n] for n in (11, 12, 13)} == {11: 1536, 12: 64, 13: 64 * 64}


def test_measurements_write_no_array_of_the_program(
    lt: Lt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments of gelu are a result: the calls that are timed have another array for them."""
    times = {algorithm(1): 4.0, algorithm(2): 3.0, algorithm(3): 6.0}
    made = products(monkeypatch, Tuning(None, measures=True), times)
    timed = list[Any]()
    take = type(made)._time
    monkeypatch.setattr(type(made), "_time", lambda one, run: timed.append(run) or take(one, run))
    epilogue = CallEpilogue(activation=Activation.GELU, aux=True)
    gemm = replace(product(BF16, 1024), epilogue=epilogue)
    found = made.load_only_here(gemm, ADDRESSES, 0, 0, 1536)
    assert run_algorithm(found) == algorithm(2)
    aux = [v._obj.value for _, n, v, _ in lt.named("MatmulDescSetAttribute") if n == 11]
    assert aux == [1536, 1 << 20]
    assert len(timed) == 3
    own = found.func.__self__
    assert all(run.func.__self__ is not own for run in timed)


def test_cublas_hands_products_with_epilogues_on(lt: Lt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row-major product: a is the right operand. The call has the addresses of all arrays, also of parts of them."""
    module = importlib.import_module("runtime.gpu.cuda.gemm")
    monkeypatch.setattr(
        module, "load_cublas", lambda: SimpleNamespace(cublasDestroy_v2=lambda _: 0)
    )
    monkeypatch.setattr(module, "call", lambda *_: None)
    cublas = module.Cublas(
        lambda _: SimpleNamespace(address=1 << 20), lambda *_: None, CaptureLock()
    )
    view = StridedView.dense(ArrayShape(F32, (64, 64)))
    lhs, rhs, out, addend = (DeviceView(4096 * n, view) for n in (1, 2, 3, 4))
    bias = DeviceView(4096 * 5, StridedView(F32, (64, 64), (0, 4), 256))
    epilogue = CallEpilogue(beta=1.0, bias=True, activation=Activation.GELU, aux=True)
    gemm = replace(product(F32, 64), epilogue=epilogue)
    aux = DeviceView(4096 * 6, view)
    enqueue = cublas.load(GemmWork((gemm,), lhs, rhs, out, addend, bias, aux))
    enqueue(SimpleNamespace(ptr=7))
    ((*arguments,),) = lt.named("Matmul")
    assert [arguments[n] for n in (3, 5, 8, 10, 15)] == [8192, 4096, 16384, 12288, 7]
    wanted = {n: value._obj.value for _, n, value, _ in lt.named("MatmulDescSetAttribute")}
    assert (wanted[8], wanted[11]) == (4096 * 5 + 256, 4096 * 6)


def test_epilogues_have_algorithms_of_their_own(
    lt: Lt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large products are measured, also with an epilogue, which is a part of the key; scales are none."""
    file = tmp_path / "tuning.json"
    times = {algorithm(1): 4.0, algorithm(2): 3.0, algorithm(3): 6.0}
    made = products(monkeypatch, Tuning(file, measures=True), times)
    plain = product(BF16, 1024)
    for epilogue in (
        CallEpilogue(bias=True),
        CallEpilogue(bias=True, activation=Activation.RELU),
        CallEpilogue(alpha=0.5, beta=1.0),
        CallEpilogue(alpha=0.25, beta=0.5),
        CallEpilogue(activation=Activation.GELU),
    ):
        found = made.load_only_here(replace(plain, epilogue=epilogue), ADDRESSES, 0, 1024)
        assert run_algorithm(found) == algorithm(2)
    keys = json.loads(file.read_text())
    assert sorted(key.rpartition("N1024/0")[2] for key in keys) == [
        " addend, aligned to 256",
        " bias relu, aligned to 256",
        " bias, aligned to 256",
        " gelu, aligned to 256",
    ]
    small = replace(product(BF16, 64), epilogue=CallEpilogue(bias=True))
    lt.calls.clear()
    made.load_only_here(small, ADDRESSES, 0, 1024)
    assert len(json.loads(file.read_text())) == 4
