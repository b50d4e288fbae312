"""Loops over elements: bandwidth by what they touch, operations by type, and what a loop costs before it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import runtime.kernels  # noqa: F401 - fills the library
from launch.calibration.memory import aligned
from launch.calibration.timing import Action, best_seconds, on_every_core
from runtime.codegen.element_operations import ElementSignature, has_operation
from runtime.codegen.scalar_program import ScalarOp, ScalarProgram
from runtime.kernels.loop import Walk, bind_loop
from spmd.hlo import Opcode
from spmd.machine.description import MemoryLevel, Rates
from spmd.shape import PrimitiveType

P = PrimitiveType
#: Types whose operations are measured; products' rates come from elsewhere.
TYPES = (P.F32, P.F64, P.BF16)
#: Those whose functions are; narrower types compute in f32.
WIDE = (P.F32, P.F64)
#: Operations that take longer than an addition, or may.
FUNCTIONS = (
    *(Opcode.CBRT, Opcode.COSINE, Opcode.DIVIDE, Opcode.ERF, Opcode.EXPONENTIAL),
    *(Opcode.EXPONENTIAL_MINUS_ONE, Opcode.LOG, Opcode.LOG_PLUS_ONE, Opcode.LOGISTIC),
    *(Opcode.POWER, Opcode.RSQRT, Opcode.SINE, Opcode.SQRT, Opcode.TAN, Opcode.TANH),
)
#: What a chain of simple operations is made of.
CHAIN = (Opcode.ADD, Opcode.MULTIPLY, Opcode.MAXIMUM, Opcode.SUBTRACT)


@dataclass(frozen=True)
class LoopSizes:
    """working_sets: bytes read and written together, up to each of which a bandwidth is measured. near_bytes: fits into
    the nearest cache of anything this runs on. elements: of one call, so many that the call itself does not count.
    chain: operations whose time is shared out.
    """

    working_sets: tuple[int, ...] = tuple(
        1 << power for power in (14, 15, 17, 19, 20, 21, 22, 24, 26, 28)
    )
    near_bytes: int = 1 << 14
    elements: int = 1 << 20
    types: tuple[PrimitiveType, ...] = TYPES
    functions: tuple[Opcode, ...] = FUNCTIONS
    chain: int = 16
    budget: float = 0.06


def levels(sizes: LoopSizes) -> tuple[MemoryLevel, ...]:
    """One for each working set; the last one is memory, all of it."""
    found = [
        MemoryLevel(f"up to {size >> 10} KiB", size, _copy_bandwidth(size, sizes))
        for size in sizes.working_sets
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    last = found.pop()
    return (*found, MemoryLevel("memory", max(memory, last.size), last.bandwidth))


def _copy_bandwidth(working_set: int, sizes: LoopSizes) -> float:
    """Bytes per second, read and written, of one array negated into another, on each core while all do so."""
    count = working_set // 8
    repeats = max(1, sizes.elements // count)
    program = _program((Opcode.NEGATE,), P.F32)
    make = partial(_loop, program, P.F32, repeats, count)
    return 8 * count * repeats / on_every_core(make, sizes.budget)


def rates(kind: PrimitiveType, matrix: float, sizes: LoopSizes) -> Rates:
    """matrix: flops of large products, which are measured elsewhere."""
    one = _element_seconds(_program(CHAIN[:1], kind), kind, sizes)
    many = _program(tuple(CHAIN[n % len(CHAIN)] for n in range(1 + sizes.chain)), kind)
    simple = max(_element_seconds(many, kind, sizes) - one, 1e-15) / sizes.chain
    negate = _element_seconds(_program((Opcode.NEGATE,), kind), kind, sizes) - simple
    found = {
        opcode: 1.0 / max(_function_seconds(opcode, kind, sizes) - negate, simple)
        for opcode in (sizes.functions if kind in WIDE else (Opcode.EXPONENTIAL,))
        if has_operation(_signature(opcode, kind))
    }
    exp = found.get(Opcode.EXPONENTIAL, 0.1 / simple)
    return Rates(matrix, 1.0 / simple, exp, tuple(found.items()) if kind in WIDE else ())


def _function_seconds(opcode: Opcode, kind: PrimitiveType, sizes: LoopSizes) -> float:
    return _element_seconds(_program((opcode,), kind), kind, sizes)


def _element_seconds(program: ScalarProgram, kind: PrimitiveType, sizes: LoopSizes) -> float:
    """Of one element of a row in the nearest cache."""
    count = sizes.near_bytes // (4 * kind.byte_size)
    repeats = max(1, sizes.elements // (16 * count))
    return best_seconds(_loop(program, kind, repeats, count), sizes.budget / 4) / (repeats * count)


def _signature(opcode: Opcode, kind: PrimitiveType) -> ElementSignature:
    two = opcode in (*CHAIN, Opcode.DIVIDE, Opcode.POWER)
    return ElementSignature(opcode, (kind,) * (2 if two else 1), kind)


def _program(chain: Sequence[Opcode], kind: PrimitiveType) -> ScalarProgram:
    """Each operation of what the one before gives, and of a second parameter where it takes two."""
    steps, last = [], 0
    for n, opcode in enumerate(chain):
        signature = _signature(opcode, kind)
        steps.append(ScalarOp(signature, (last, 1)[: len(signature.operands)]))
        last = 2 + n
    return ScalarProgram((kind, kind), tuple(steps), (last,))


def _loop(program: ScalarProgram, kind: PrimitiveType, repeats: int, count: int) -> Action:
    """``program`` on rows of ``count`` elements, going over the same row ``repeats`` times."""
    rows = [aligned((count,), kind.numpy, 0.5) for _ in range(3)]
    item = kind.byte_size
    walks = [Walk(row.ctypes.data, (0, item), item) for row in rows]
    walks[1] = Walk(rows[1].ctypes.data, (0, 0), item)
    return bind_loop(program, (repeats, count), walks, tuple(rows))


def row_seconds(sizes: LoopSizes) -> float:
    """What short rows cost beyond their elements in one long row of the same bytes."""
    rows, elements = 1 << 12, 16
    program = _program(CHAIN[:1], P.F32)
    short = best_seconds(_rows(program, rows, elements), sizes.budget)
    long = best_seconds(_rows(program, 16, rows * elements // 16), sizes.budget)
    return max(0.0, (short - long) / rows)


def _rows(program: ScalarProgram, rows: int, count: int) -> Action:
    """Rows of arrays whose rows are a little longer."""
    arrays = [aligned((rows, count + 16), P.F32.numpy, 0.5) for _ in range(3)]
    walks = [Walk(array.ctypes.data, array.strides, 4) for array in arrays]
    return bind_loop(program, (rows, count), walks, tuple(arrays))
