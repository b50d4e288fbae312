"""Calibration of loops over elements: bandwidth by working set, time of operations by type, and time of a row."""

from __future__ import annotations

import os
from collections.abc import Sequence

import runtime.cpu.kernels  # noqa: F401 - fills the library
from launch.calibration.memory import Arena
from launch.calibration.probes import CoreProbe, Seconds
from launch.calibration.timing import Action
from runtime.codegen.ir.element_operations import has_operation
from runtime.cpu.kernels.loop.loop import ArrayAccess, bind_loop
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MemoryLevel, Rates
from spmd.shape import PrimitiveType

P = PrimitiveType
#: Types whose elementwise operations are measured.
TYPES = (P.F32, P.F64, P.BF16)
#: Types whose functions are all measured. Narrower types compute in f32.
WIDE = (P.F32, P.F64)
#: Operations that may take longer than an addition.
FUNCTIONS = (
    *(Opcode.CBRT, Opcode.COSINE, Opcode.DIVIDE, Opcode.ERF, Opcode.EXPONENTIAL),
    *(Opcode.EXPONENTIAL_MINUS_ONE, Opcode.LOG, Opcode.LOG_PLUS_ONE, Opcode.LOGISTIC),
    *(Opcode.POWER, Opcode.RSQRT, Opcode.SINE, Opcode.SQRT, Opcode.TAN, Opcode.TANH),
)
#: Simple operations, of which a chain is timed.
CHAIN = (Opcode.ADD, Opcode.MULTIPLY, Opcode.MAXIMUM, Opcode.SUBTRACT)


@dataclass(frozen=True)
class LoopSizes:
    """Sizes of the measured loops.

    working_sets: sums of the bytes read and written; a bandwidth is measured for each.
    cached_bytes: working set that fits into the first-level cache of every supported machine.
    elements: determines the number of elements of one call, such that the overhead of the call is negligible.
    types, functions: element types and functions that are measured.
    chain: number of simple operations in a row, by which the measured time is divided.
    budget: approximate seconds of one round of a bandwidth.
    """

    working_sets: tuple[int, ...] = tuple(
        1 << power for power in (14, 15, 17, 19, 20, 21, 22, 24, 25, 26, 28)
    )
    cached_bytes: int = 1 << 14
    elements: int = 1 << 20
    types: tuple[PrimitiveType, ...] = TYPES
    functions: tuple[Opcode, ...] = FUNCTIONS
    chain: int = 16
    budget: float = 0.02


@dataclass(frozen=True)
class CopyProbe(CoreProbe):
    """Probe that negates one f32 array into another ``repeats`` times. Both have ``working_set`` bytes together."""

    working_set: int
    repeats: int

    @property
    def executions(self) -> int:
        """Return the number of passes over the arrays in one run of the action."""
        return self.repeats

    def make(self, arena: Arena) -> Action:
        """Return the action for one core, with arrays from ``arena``."""
        program = _program((Opcode.NEGATE,), P.F32)
        return _loop(arena, program, P.F32, self.repeats, self.working_set // 8)


@dataclass(frozen=True)
class ElementProbe(CoreProbe):
    """Probe of the time per element of the operations ``chain``, applied in turn to a cached row.

    count: elements of the row. repeats: passes over the row in one run.
    """

    chain: tuple[Opcode, ...]
    kind: PrimitiveType
    count: int
    repeats: int

    @property
    def executions(self) -> int:
        """Return the number of elements that one run of the action processes."""
        return self.repeats * self.count

    def make(self, arena: Arena) -> Action:
        """Return the action for one core, with arrays from ``arena``."""
        return _loop(arena, _program(self.chain, self.kind), self.kind, self.repeats, self.count)


@dataclass(frozen=True)
class RowsProbe(CoreProbe):
    """Probe of a loop that adds two f32[``rows``, ``count``] arrays, whose rows are not contiguous with each other."""

    rows: int
    count: int

    def make(self, arena: Arena) -> Action:
        """Return the action for one core, with arrays from ``arena``."""
        arrays = [arena.array((self.rows, self.count + 16), P.F32.numpy, 0.5) for _ in range(3)]
        accesses = [ArrayAccess(array.ctypes.data, array.strides, 4) for array in arrays]
        return bind_loop(
            _program(CHAIN[:1], P.F32), (self.rows, self.count), accesses, tuple(arrays)
        )


def memory_probes(sizes: LoopSizes) -> tuple[CopyProbe, ...]:
    """Return a probe of the bandwidth of each working set."""
    return tuple(_copy(working_set, sizes) for working_set in sizes.working_sets)


def _copy(working_set: int, sizes: LoopSizes) -> CopyProbe:
    return CopyProbe(sizes.budget, working_set, max(1, 8 * sizes.elements // working_set))


def levels(sizes: LoopSizes, seconds: Seconds) -> tuple[MemoryLevel, ...]:
    """Return a memory level for each working set, from ``memory_probes``. The last level is the entire memory."""
    found = [
        MemoryLevel(f"up to {size >> 10} KiB", size, size / seconds[_copy(size, sizes)])
        for size in sizes.working_sets
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    last = found.pop()
    return (*found, MemoryLevel("memory", max(memory, last.size), last.bandwidth))


def element_probes(kind: PrimitiveType, sizes: LoopSizes) -> tuple[ElementProbe, ...]:
    """Return the probes from which ``rates`` computes the rates of ``kind``."""
    chains = (CHAIN[:1], _chain(sizes), (Opcode.NEGATE,), *((f,) for f in _functions(kind, sizes)))
    return tuple(_element(chain, kind, sizes) for chain in chains)


def _element(chain: tuple[Opcode, ...], kind: PrimitiveType, sizes: LoopSizes) -> ElementProbe:
    count = sizes.cached_bytes // (4 * kind.byte_size)
    repeats = max(1, sizes.elements // (16 * count))
    return ElementProbe(sizes.budget / 4, chain, kind, count, repeats)


def _chain(sizes: LoopSizes) -> tuple[Opcode, ...]:
    """Return ``1 + sizes.chain`` simple operations. The first one is also timed alone, and its time is subtracted."""
    return tuple(CHAIN[n % len(CHAIN)] for n in range(1 + sizes.chain))


def _functions(kind: PrimitiveType, sizes: LoopSizes) -> tuple[Opcode, ...]:
    """Return the functions that are measured for ``kind`` and have native code."""
    wanted = sizes.functions if kind in WIDE else (Opcode.EXPONENTIAL,)
    return tuple(opcode for opcode in wanted if has_operation(_signature(opcode, kind)))


def rates(kind: PrimitiveType, matrix: float, sizes: LoopSizes, seconds: Seconds) -> Rates:
    """Return the rates of element type ``kind``, from the times of ``element_probes``.

    matrix: flops per second of large products, which products.py measures.
    """

    def element(*chain: Opcode) -> float:
        return seconds[_element(chain, kind, sizes)]

    simple = max(element(*_chain(sizes)) - element(*CHAIN[:1]), 1e-15) / sizes.chain
    negate = element(Opcode.NEGATE) - simple
    found = {
        opcode: 1.0 / max(element(opcode) - negate, simple) for opcode in _functions(kind, sizes)
    }
    exp = found.get(Opcode.EXPONENTIAL, 0.1 / simple)
    return Rates(matrix, 1.0 / simple, exp, tuple(found.items()) if kind in WIDE else ())


#: Numbers of short and of long rows with the same number of elements in all, and the length of a short row.
_SHORT_ROWS, _LONG_ROWS, _SHORT_ROW = 1 << 12, 1 << 4, 1 << 4


def row_probes(sizes: LoopSizes) -> tuple[RowsProbe, RowsProbe]:
    """Return the probe of short rows and that of long rows."""
    elements = _SHORT_ROWS * _SHORT_ROW
    return (
        RowsProbe(sizes.budget, _SHORT_ROWS, _SHORT_ROW),
        RowsProbe(sizes.budget, _LONG_ROWS, elements // _LONG_ROWS),
    )


def row_seconds(sizes: LoopSizes, seconds: Seconds) -> float:
    """Return the seconds that a row costs in addition to its elements, from the times of ``row_probes``."""
    short, long = (seconds[probe] for probe in row_probes(sizes))
    return max(0.0, (short - long) / _SHORT_ROWS)


def _signature(opcode: Opcode, kind: PrimitiveType) -> ElementSignature:
    """Return the signature of ``opcode`` on operands of ``kind``."""
    two = opcode in (*CHAIN, Opcode.DIVIDE, Opcode.POWER)
    return ElementSignature(opcode, (kind,) * (2 if two else 1), kind)


def _program(chain: Sequence[Opcode], kind: PrimitiveType) -> ScalarProgram:
    """Return a program of two parameters that applies the operations ``chain`` in turn, the first to the first one.

    The second operand of binary operations is the second parameter.
    """
    steps, last = [], 0
    for n, opcode in enumerate(chain):
        signature = _signature(opcode, kind)
        steps.append(ScalarOp(signature, (last, 1)[: len(signature.operands)]))
        last = 2 + n
    return ScalarProgram((kind, kind), tuple(steps), (last,))


def _loop(
    arena: Arena, program: ScalarProgram, kind: PrimitiveType, repeats: int, count: int
) -> Action:
    """Return an action that runs ``program`` on a row of ``count`` elements ``repeats`` times."""
    rows = [arena.array((size,), kind.numpy, 0.5) for size in (count, 1, count)]
    item = kind.byte_size
    accesses = [ArrayAccess(row.ctypes.data, (0, item), item) for row in rows]
    accesses[1] = ArrayAccess(rows[1].ctypes.data, (0, 0), item)
    return bind_loop(program, (repeats, count), accesses, tuple(rows))
