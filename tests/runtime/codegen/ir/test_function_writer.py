"""Functions made with the IR writer compute what NumPy does."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from runtime.codegen.elements.builder import Float, Int
from runtime.codegen.elements.formats import F32, F64, FloatFormat, VectorFormat
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Vector, selected, splat
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.program.argument_record import Address, Record, Word, record

Array = np.ndarray[Any, Any]
#: Everything that compiles IR: with LLVM's vectors, with this project's, and as it is written.
PASSES = (Passes.TIDY, Passes.VECTORIZE)


@record
class StridedCopy(Record):
    """target[r, i] = source[r, i]: addresses of the first elements; strides in bytes."""

    source: Address
    target: Address
    rows: Word
    count: Word
    source_row: Word
    target_row: Word
    source_stride: Word
    target_stride: Word


def compiled(f: FunctionWriter, name: str, passes: Passes = Passes.TIDY) -> NativeLibrary:
    return host_jit().compile(f.end(), (name,), passes=passes)


def call(library: NativeLibrary, name: str, words: Array) -> None:
    library.function(name, None, ctypes.c_void_p)(words.ctypes.data)


def function_of(*parameters: str, result: str = "i64") -> FunctionWriter:
    return FunctionWriter("f", parameters=parameters, result=result)


def made(f: FunctionWriter, passes: Passes = Passes.TIDY) -> Callable[..., int]:
    """Return the compiled function of words and addresses."""
    library = compiled(f, "f", passes)

    def run(*arguments: int) -> int:
        kinds = [ctypes.c_int64] * len(arguments)
        return int(library.function("f", ctypes.c_int64, *kinds)(*arguments))

    return run


def answer(f: FunctionWriter, *arguments: int, passes: Passes = Passes.TIDY) -> int:
    return made(f, passes)(*arguments)


# ---- loops
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (4, 0)], ids=str)
def test_a_strided_copy(width: int, shape: tuple[int, int]) -> None:
    f = FunctionWriter("copy", StridedCopy)
    rec = f.record
    with f.loop(rec.rows, nonempty=False) as r:
        source_row, target_row = (
            rec.source.at(r * rec.source_row),
            rec.target.at(r * rec.target_row),
        )
        with f.loop(rec.count, nonempty=False) as i:
            element = source_row.at(i * rec.source_stride).load(f"i{8 * width}", align=1)
            target_row.at(i * rec.target_stride).store(element, align=1)
    kind = np.dtype(f"V{width}")
    source = np.arange(width * 60, dtype=np.uint8).view(kind)[:60].reshape(6, 10)[:3, :5]
    source = source[: shape[0], : shape[1]][::-1, ::-1]
    target = np.zeros(shape[::-1], kind).T
    steps = (source.strides[0], target.strides[0], source.strides[1], target.strides[1])
    words = StridedCopy(source.ctypes.data, target.ctypes.data, *shape, *steps).to_array()
    call(compiled(f, "copy"), "copy", words)
    assert target.tobytes() == source.tobytes()


@record
class IndexedCopy(Record):
    """Addresses, and how many dimensions of (size, strides) follow."""

    source: Address
    target: Address
    rank: Word


@pytest.mark.parametrize("rank", range(6))
def test_an_index_loop_over_any_rank(rank: int) -> None:
    f = FunctionWriter("copy", IndexedCopy)
    rec = f.record
    dimensions = f.parameters[0].element("i64", 3)
    with f.index_loop(dimensions, rec.rank, 8, (rec.source, rec.target)) as (source, target):
        target.store(source.load("i32"))
    shape = (2, 3, 1, 4, 2)[:rank]
    whole = np.arange(1 << (2 * rank), dtype=np.int32).reshape((4,) * rank)
    source = whole[(*(slice(size) for size in shape), ...)]
    source = source[(*(slice(None, None, -1),) * rank, ...)].transpose()
    target = np.zeros(source.shape, np.int32)
    sizes = zip(source.shape, source.strides, target.strides, strict=True)
    words = [source.ctypes.data, target.ctypes.data, rank, *itertools.chain(*sizes)]
    call(compiled(f, "copy"), "copy", np.array(words, np.int64))
    assert np.array_equal(target, source)


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("length", [1, 2, 7, 16, 63, 64, 65, 200])
def test_vector_loops_of_any_length(length: int, passes: Passes) -> None:
    f = function_of("ptr", "ptr", "i64")
    x, y, count = f.parameters
    with f.vector_loop(count) as k:
        element = x.element("float", k).load("float")
        y.element("float", k).store(element * 2.0 + 1.0)
    f.ret(count)
    xs = np.arange(256, dtype=np.float32)
    ys = np.full(256, -1, np.float32)
    assert answer(f, xs.ctypes.data, ys.ctypes.data, length, passes=passes) == length
    assert np.array_equal(ys[:length], 2 * xs[:length] + 1)
    assert np.all(ys[length:] == -1)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 640, 1000])
def test_blocks_cover_each_index_once(size: int) -> None:
    f = function_of("ptr", "i64")
    counts, total = f.parameters
    with (
        f.blocks(total, 64, {0: Cursor(counts, 8)}) as (first, length, here),
        f.vector_loop(length) as k,
    ):
        place = here[0].element("i64", k)
        place.store(place.load() + first + k)
    f.ret(0)
    found = np.ones(1024, np.int64)
    answer(f, found.ctypes.data, size)
    assert np.array_equal(found[:size], 1 + np.arange(size))
    assert np.all(found[size:] == 1)


def test_cursors_move_by_their_steps() -> None:
    f = function_of("ptr", "i64", "i64")
    base, count, step = f.parameters
    cursors = {"at": Cursor(base, step), "number": Cursor(f.constant(7), 3)}
    with f.cursor_loop(count, cursors) as (i, here):
        here["at"].store(here["number"] * 100 + i)
    f.ret(0)
    found = np.zeros(8, np.int64)
    answer(f, found[-1:].ctypes.data, 4, -16)
    assert found.tolist() == [0, 1603, 0, 1302, 0, 1001, 0, 700]


def test_a_repetition_carries_values() -> None:
    """Euclid's algorithm."""
    f = function_of("i64", "i64")
    with f.repeat(*f.parameters) as loop:
        a, b = loop.values
        loop.leave(b.equals(0))
        loop.again(b, a % b)
    f.ret(a)
    assert answer(f, 48, 18) == np.gcd(48, 18)


def test_a_repetition_that_goes_on_while_a_condition_holds() -> None:
    f = function_of("i64")
    with f.repeat(0, 1) as loop:
        i, power = loop.values
        doubled = power * 2
        loop.again(i + 1, doubled, when=(i + 1).ult(f.parameters[0]))
    f.ret(doubled)
    assert answer(f, 10) == 1024


def test_loops_that_step_and_begin_anywhere() -> None:
    f = function_of("i64", "i64")
    total = f.variable("i64")
    total.store(f.constant(0))
    with f.loop(f.parameters[1], first=f.parameters[0], step=3, nonempty=False) as i:
        total.store(total.load() + i)
    f.ret(total.load())
    run = made(f)
    assert run(5, 20) == sum(range(5, 20, 3))
    assert run(20, 5) == 0


# ---- branches
@pytest.mark.parametrize(("x", "expected"), [(3, 30), (0, -1)])
def test_a_branch_gives_a_value_of_either_side(x: int, expected: int) -> None:
    f = function_of("i64")
    with f.when(f.parameters[0].differs(0)) as branch:
        taken = f.parameters[0] * 10
        branch.otherwise()
        other = f.parameters[0] - 1
    f.ret(branch.merged(taken, other))
    assert answer(f, x) == expected


@pytest.mark.parametrize(("x", "expected"), [(3, 1), (-3, 2), (0, 3)])
def test_branches_that_return(x: int, expected: int) -> None:
    f = function_of("i64")
    with f.when(f.parameters[0] > 0) as branch:
        f.ret(1)
        branch.otherwise()
        with f.when(f.parameters[0] < 0):
            f.ret(2)
        f.ret(3)
    assert answer(f, x) == expected


def test_code_is_skipped_for_a_count_of_zero() -> None:
    f = function_of("ptr", "i64")
    place, count = f.parameters
    with f.unless_zero(count), f.loop(count) as i:
        place.element("i64", i).store(i)
    f.ret(0)
    found = np.full(4, 9, np.int64)
    run = made(f)
    run(found.ctypes.data, 0)
    assert found.tolist() == [9] * 4
    run(found.ctypes.data, 3)
    assert found.tolist() == [0, 1, 2, 9]


# ---- numbers
BINARY: dict[str, tuple[Callable[[Int, Int], Int], Callable[[Any, Any], Any]]] = {
    "+": (lambda a, b: a + b, np.add),
    "-": (lambda a, b: a - b, np.subtract),
    "*": (lambda a, b: a * b, np.multiply),
    "//": (lambda a, b: a // b, np.floor_divide),
    "%": (lambda a, b: a % b, np.remainder),
    "&": (lambda a, b: a & b, np.bitwise_and),
    "|": (lambda a, b: a | b, np.bitwise_or),
    "^": (lambda a, b: a ^ b, np.bitwise_xor),
    "umin": (lambda a, b: a.umin(b), np.minimum),
    "umax": (lambda a, b: a.umax(b), np.maximum),
    "<": (lambda a, b: a.ult(b).resized(a.type), np.less),
    "==": (lambda a, b: a.equals(b).resized(a.type), np.equal),
}


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("name", BINARY)
def test_unsigned_arithmetic_of_all_widths(bits: int, name: str) -> None:
    operation, reference = BINARY[name]
    kind = np.dtype(f"u{bits // 8}")
    f = function_of("ptr", "ptr", "ptr", "i64")
    a, b, c, count = f.parameters
    t = f"i{bits}"
    with f.loop(count) as k:  # a vector's inactive lanes are zeros, by which none may divide
        c.element(t, k).store(operation(a.element(t, k).load(t), b.element(t, k).load(t)))
    f.ret(0)
    random = np.random.default_rng(bits)
    xs = random.integers(0, 1 << bits, 50, kind, endpoint=False)
    ys = np.maximum(random.integers(0, 1 << bits, 50, kind, endpoint=False), 1).astype(kind)
    ys[:10] = xs[:10] | 1
    found = np.zeros(50, kind)
    answer(f, xs.ctypes.data, ys.ctypes.data, found.ctypes.data, 50, passes=Passes.VECTORIZE)
    assert np.array_equal(found, reference(xs, ys).astype(kind))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_signed_numbers(bits: int) -> None:
    f = function_of("ptr", "ptr", "ptr")
    a, b, found = f.parameters
    t = f"i{bits}"
    x, y = a.load(t), b.load(t)
    values = [x.smin(y), x.smax(y), -x, x.signed_shift(2), (x < y).select(x, 1), x >> 2, x << 1]
    for n, value in enumerate(values):
        found.element("i64", n).store(value.resized("i64", signed=True))
    f.ret(0)
    kind = np.dtype(f"i{bits // 8}")
    one, two = np.array([-7], kind), np.array([3], kind)
    words = np.zeros(len(values), np.int64)
    answer(f, one.ctypes.data, two.ctypes.data, words.ctypes.data)
    shifted = int(one.view(f"u{bits // 8}")[0] >> np.uint8(2))
    assert words.tolist() == [-7, 3, 7, -2, -7, shifted, -14]


@pytest.mark.parametrize("form", [F32, F64], ids=lambda form: form.name)
def test_numbers_of_a_vector_are_computed_lane_by_lane(form: FloatFormat) -> None:
    lanes = 64 // (form.bits // 8)
    vectors = VectorFormat.of(form, lanes)
    f = function_of("ptr", "ptr")
    source, target = f.parameters
    x: Float = source.load(vectors, align=1)
    y = (x * x - 0.5) / (x + 2.0)
    backwards = Vector(f, y.type, y.name).shuffled(range(lanes - 1, -1, -1))
    target.store(backwards, align=1)
    target.at(64).store(splat(source.load(form), lanes), align=1)
    f.ret(0)
    kind = {32: np.float32, 64: np.float64}[form.bits]
    xs = np.linspace(1, 2, lanes, dtype=kind)
    found = np.zeros(2 * lanes, kind)
    answer(f, xs.ctypes.data, found.ctypes.data)
    assert np.array_equal(found[:lanes], ((xs * xs - kind(0.5)) / (xs + kind(2)))[::-1])
    assert np.all(found[lanes:] == xs[0])


# ---- memory and calls
def test_memory_is_set_copied_and_updated_atomically() -> None:
    f = function_of("ptr", "ptr")
    source, target = f.parameters
    f.memcpy(target, source, 16)
    f.memset(source, 8)
    before = target.update("add", 5, "seq_cst")
    target.element("i64", 1).store(before, order="release")
    f.ret(target.load(order="acquire"))
    one, other = np.array([3, 4], np.int64), np.zeros(2, np.int64)
    assert answer(f, one.ctypes.data, other.ctypes.data) == 8
    assert (one.tolist(), other.tolist()) == ([0, 4], [8, 3])


def test_functions_of_a_module_call_each_other() -> None:
    module = Module()
    square = FunctionWriter(
        "square", module=module, parameters=("i64",), result="i64", linkage="internal"
    )
    square.ret(square.parameters[0] * square.parameters[0])
    square.finish()
    f = FunctionWriter("f", module=module, parameters=("i64", "ptr"), result="i64")
    number = f.call("i64", "square", f.parameters[0])
    is_large = number.ult(100)
    other = f.parameters[1].load("i64")
    f.ret(selected(is_large, number, other))
    place = np.array([-1], np.int64)
    run = made(f)
    assert run(9, place.ctypes.data) == 81
    assert run(11, place.ctypes.data) == -1
