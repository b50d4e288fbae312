"""Tests of native code against the reference evaluator: families of operations on every element type that they take.

One program for each type and kind of family holds all of them, on arrays of odd sizes: a single element, fewer and more
than a vector's, and one more or less than a power of two. What moves or orders elements has the evaluator's bits on
infinities, nan, zeros of either sign, denormal numbers and the ends of the type; sums are of ordinary numbers.
(cpu/kernels/loop/test_native_elementwise.py tests elementwise operations in the same way.)
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from runtime.program.records.reference import ReferenceKernel
from runtime.program.thunks import KernelThunk, ThunkSequence, traverse
from spmd.evaluator.evaluator import evaluate
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.runtime.cpu.kernels.loop.element_signatures import canonical
from tests.runtime.programs.build import compiled, module_of

P = PrimitiveType
KINDS = tuple(P)
COMPLEX = tuple(kind for kind in KINDS if kind.is_complex)
ORDERED = tuple(kind for kind in KINDS if not kind.is_complex)
SUMMED = tuple(kind for kind in KINDS if kind not in (P.PRED, P.F8E8M0FNU))
#: Rows and columns; those of reductions have no size that leaves nothing to reduce.
SIZES = ((1, 1), (3, 63), (17, 7))
REDUCED_SIZES = ((2, 3), (3, 65))
#: One type of each width, reduced at both sizes: a row shorter than a vector has the code of a longer row's end.
OF_EACH_WIDTH = (P.PRED, P.S4, P.U8, P.BF16, P.F32, P.S64, P.C128)


class Program:
    """HLO text that grows: parameters of each size, and what is computed from them."""

    def __init__(self, kind: PrimitiveType) -> None:
        self.kind = kind
        self.lines: list[str] = []
        self.parameters = 0
        self.results: list[tuple[str, str]] = []
        self.indices: set[str] = set()

    def index(self, shape: str) -> str:
        """Add a parameter with numbers of rows, some of which do not exist, and return its name."""
        name = self.parameter(shape)
        self.indices.add(name)
        return name

    def parameter(self, shape: str) -> str:
        name = f"p{self.parameters}"
        self.lines.append(f"  {name} = {shape} parameter({self.parameters})")
        self.parameters += 1
        return name

    def value(self, shape: str, operation: str, *, result: bool = True) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {operation}")
        if result:
            self.results.append((name, shape))
        return name

    def text(self, functions: str) -> str:
        names = ", ".join(name for name, _ in self.results)
        shapes = ", ".join(shape for _, shape in self.results)
        lines = [*self.lines, f"  ROOT r = ({shapes}) tuple({names})"]
        return "\n".join(["HloModule types", functions, "ENTRY main {", *lines, "}"])


def combiner(name: str, kind: PrimitiveType, operation: str) -> str:
    scalar = f"{kind}[]"
    return (
        f"{name} {{\n  a = {scalar} parameter(0)\n  b = {scalar} parameter(1)\n"
        f"  ROOT r = {scalar} {operation}(a, b)\n}}\n"
    )


def second(kind: PrimitiveType) -> str:
    scalar = f"{kind}[]"
    return f"second {{\n  a = {scalar} parameter(0)\n  ROOT b = {scalar} parameter(1)\n}}\n"


def moved(program: Program, n: int, m: int) -> None:
    """Add copies of all kinds to the program."""
    t = program.kind
    x = program.parameter(f"{t}[{n},{m}]")
    one = program.value(f"{t}[1,1]", f"slice({x}), slice={{[0:1], [0:1]}}", result=False)
    scalar = program.value(f"{t}[]", f"reshape({one})", result=False)
    program.value(f"{t}[{m},{n}]", f"transpose({x}), dimensions={{1,0}}")
    program.value(f"{t}[{n},{m}]", f"reverse({x}), dimensions={{0,1}}")
    program.value(f"{t}[{n + 3},{2 * m}]", f"pad({x}, {scalar}), padding=1_2x0_1_1")
    program.value(f"{t}[{n},{2 * m}]", f"concatenate({x}, {x}), dimensions={{1}}")
    program.value(f"{t}[{n},{(m + 1) // 2}]", f"slice({x}), slice={{[0:{n}], [0:{m}:2]}}")
    indices = program.index("s32[5,1]")
    program.value(
        f"{t}[5,{m}]",
        f"gather({x}, {indices}), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
        f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{m}}}",
    )
    start = program.index("s32[]")
    piece = program.value(
        f"{t}[1,{m}]",
        f"dynamic-slice({x}, {start}, {start}), dynamic_slice_sizes={{1,{m}}}",
    )
    program.value(f"{t}[{n},{m}]", f"dynamic-update-slice({x}, {piece}, {start}, {start})")
    updates = program.parameter(f"{t}[5,{m}]")
    program.value(
        f"{t}[{n},{m}]",
        f"scatter({x}, {indices}, {updates}), update_window_dims={{1}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=second",
    )


def reductions(program: Program, n: int, m: int) -> None:
    """Add reductions by the function f: along rows and columns, running, in windows, scattered."""
    t = program.kind
    x = program.parameter(f"{t}[{n},{m}]")
    init = program.parameter(f"{t}[]")
    program.value(f"{t}[{n}]", f"reduce({x}, {init}), dimensions={{1}}, to_apply=f")
    program.value(f"{t}[{m}]", f"reduce({x}, {init}), dimensions={{0}}, to_apply=f")
    for window in (
        f"size=1x{m} pad=0_0x{m - 1}_0",
        f"size={n}x1 pad=0_{n - 1}x0_0",
        "size=3x2 pad=1_1x1_0",
    ):
        program.value(
            f"{t}[{n},{m}]", f"reduce-window({x}, {init}), window={{{window}}}, to_apply=f"
        )
    indices, updates = program.index("s32[5,1]"), program.parameter(f"{t}[5,{m}]")
    program.value(
        f"{t}[{n},{m}]",
        f"scatter({x}, {indices}, {updates}), update_window_dims={{1}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=f",
    )


def sorts(program: Program, n: int, m: int) -> None:
    t = program.kind
    x = program.parameter(f"{t}[{n},{m}]")
    program.value(f"{t}[{n},{m}]", f"sort({x}), dimensions={{1}}, is_stable=true, to_apply=lt")
    program.value(f"{t}[{n},{m}]", f"sort({x}), dimensions={{0}}, is_stable=true, to_apply=lt")


def compare(kind: PrimitiveType) -> str:
    order = ", type=TOTALORDER" if kind.is_floating else ""
    scalar = f"{kind}[]"
    return (
        f"lt {{\n  a = {scalar} parameter(0)\n  b = {scalar} parameter(1)\n"
        f"  ROOT r = pred[] compare(a, b), direction=LT{order}\n}}\n"
    )


def edges(kind: PrimitiveType, dims: tuple[int, ...], rng: np.random.Generator) -> NDArray:
    """Return all edge values again and again, in random order."""
    dtype = kind.numpy
    if kind is P.PRED:
        return np.asarray(rng.random(dims) < 0.5)
    if kind.is_integer:
        low = -(1 << (kind.bits - 1)) if kind.is_signed_integer else 0
        high = low + (1 << kind.bits) - 1
        found = np.array([low, high, 0, 1, high // 2, low // 2], object)
        return rng.choice(found, dims).astype(dtype)
    if kind.is_complex:
        x = np.empty(dims, dtype)
        part = P.from_numpy(x.real.dtype)
        x.real, x.imag = edges(part, dims, rng), edges(part, dims, rng)
        return x
    info = ml_dtypes.finfo(dtype)
    found = [info.max, info.min, info.tiny, info.smallest_subnormal, 1, -1, 0, -0.0]
    with np.errstate(all="ignore"):
        numbers = np.array([*map(float, found), np.inf, -np.inf, np.nan], np.float64)
        return rng.choice(numbers.astype(dtype), dims)


def edges_and_one_zero(
    kind: PrimitiveType, dims: tuple[int, ...], rng: np.random.Generator
) -> NDArray:
    """Return edge values with one kind of zero, since either of two zeros is a maximum."""
    x = edges(kind, dims, rng)
    x[x == 0] = 0
    return x


def ordinary(kind: PrimitiveType, dims: tuple[int, ...], rng: np.random.Generator) -> NDArray:
    if kind.is_integer:
        return rng.integers(0, 2 if kind.bits < 4 else 7, dims).astype(kind.numpy)
    values = rng.integers(-8, 8, dims) / 4.0
    if kind.is_complex:
        return np.asarray(values + 1j * rng.integers(-8, 8, dims)).astype(kind.numpy)
    return values.astype(kind.numpy)


def reduced_sizes(kind: PrimitiveType) -> tuple[tuple[int, int], ...]:
    return REDUCED_SIZES if kind in OF_EACH_WIDTH else REDUCED_SIZES[1:]


Inputs = Callable[[PrimitiveType, tuple[int, ...], np.random.Generator], NDArray]


def check(
    kind: PrimitiveType,
    family: Callable[[Program, int, int], None],
    functions: str,
    inputs: Inputs,
    *,
    sizes: tuple[tuple[int, int], ...] = SIZES,
    tolerance: float = 0.0,
) -> None:
    program = Program(kind)
    for size in sizes:
        family(program, *size)
    text = program.text(functions)
    executable = compiled(text)
    rng = np.random.default_rng(0)
    arrays = []
    for parameter in executable.module.entry.parameters:
        shape = parameter.array_shape
        if parameter.name in program.indices:
            arrays.append(np.asarray(rng.integers(-1, 4, shape.dims), np.int32))
        else:
            arrays.append(inputs(shape.element_type, shape.dims, rng))
    with np.errstate(all="ignore"):
        wanted = evaluate(module_of(text), *arrays)
        for got, want, (name, shape) in zip(
            executable.run(*arrays), wanted, program.results, strict=True
        ):
            assert_same(got, want, tolerance, f"{name} {shape}")
    assert_native(executable.program.thunks)


def assert_same(got: NDArray, want: NDArray, tolerance: float, what: str) -> None:
    if not tolerance:
        for x in (got, want):
            if x.dtype.itemsize == 1 and P.from_numpy(x.dtype).is_floating:
                x[np.isnan(x)] = np.nan
        assert canonical(got) == canonical(want), what
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, err_msg=what
    )


def assert_native(thunks: ThunkSequence) -> None:
    """Assert that the reference evaluator computes none of the kernels."""
    kernels = [x.kernel for x in traverse(thunks) if isinstance(x, KernelThunk)]
    assert kernels
    assert not [k for k in kernels if isinstance(k, ReferenceKernel)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_moves(kind: PrimitiveType) -> None:
    check(kind, moved, second(kind), edges)


@pytest.mark.parametrize("kind", ORDERED, ids=str)
def test_maxima(kind: PrimitiveType) -> None:
    functions = combiner("f", kind, "maximum")
    check(kind, reductions, functions, edges_and_one_zero, sizes=reduced_sizes(kind))


@pytest.mark.parametrize("kind", SUMMED, ids=str)
def test_sums(kind: PrimitiveType) -> None:
    """Sums of integers have the evaluator's bits.

    Sums of floats have as many digits as the type, less what their order changes.
    """
    tolerance = 0.0 if kind.is_integer else 4 * float(ml_dtypes.finfo(kind.numpy).eps)
    functions = combiner("f", kind, "add")
    sizes = reduced_sizes(kind)
    check(kind, reductions, functions, ordinary, sizes=sizes, tolerance=tolerance)


@pytest.mark.parametrize("kind", ORDERED, ids=str)
def test_sorts(kind: PrimitiveType) -> None:
    check(kind, sorts, compare(kind), edges)


@pytest.mark.parametrize("kind", COMPLEX, ids=str)
def test_products(kind: PrimitiveType) -> None:
    """Products are tested for complex numbers; those of other types are integers' or end in infinity and zero."""
    check(kind, reductions, combiner("f", kind, "multiply"), unit, sizes=((2, 3),), tolerance=1e-5)


def unit(kind: PrimitiveType, dims: tuple[int, ...], rng: np.random.Generator) -> NDArray:
    return np.exp(1j * rng.uniform(-3, 3, dims)).astype(kind.numpy)
