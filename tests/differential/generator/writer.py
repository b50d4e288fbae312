"""The state of one random program while it is written: builder, dice, and the values made so far.

Every value carries what makes a strict comparison possible:
    bound    its elements lie in [-bound, bound] (inf for integers that may wrap)
    whole    floating point: whole numbers small enough that sums in any order are exact
    stable   the same bits however the program is partitioned; only such values may decide (compare, sort, index)
Integers and pred are always all of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.literal import Literal
from spmd.shape import ArrayShape, PrimitiveType
from tests.dice import Dice
from tests.differential.cells import EVEN, SMALL, UNEVEN, Cell

F32, BF16, F16, F64 = (
    PrimitiveType.F32,
    PrimitiveType.BF16,
    PrimitiveType.F16,
    PrimitiveType.F64,
)
S32, S8, U8, U32, U64, PRED = (
    PrimitiveType.S32,
    PrimitiveType.S8,
    PrimitiveType.U8,
    PrimitiveType.U32,
    PrimitiveType.U64,
    PrimitiveType.PRED,
)

#: Largest magnitude up to which sums of whole numbers stay exact, with room for a few more.
WHOLE_LIMIT = {F32: 2.0**20, F64: 2.0**48, BF16: 2.0**6, F16: 2.0**9}
#: Beyond this a float is scaled down, so that nothing overflows.
SIZE_LIMIT = {F32: 2.0**12, F64: 2.0**12, BF16: 2.0**7, F16: 2.0**7}

#: Dimension sizes: even and uneven against 2, 3, 4 and 8 shards, smaller than them, 1, and (rarely) 0.
SIZES = (1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 12)
#: Those that stand in a column of the table on some mesh.
SIZES_OF = {EVEN: (2, 4, 6, 8, 12), UNEVEN: (3, 5, 7, 9, 10), SMALL: (1, 2, 2, 3, 3, 4, 6)}
MAX_ELEMENTS = 512

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Value:
    hlo: HloInstruction
    bound: float
    whole: bool = True
    stable: bool = True

    @property
    def dims(self) -> tuple[int, ...]:
        return self.hlo.dims

    @property
    def rank(self) -> int:
        return len(self.hlo.dims)

    @property
    def dtype(self) -> PrimitiveType:
        return self.hlo.array_shape.element_type

    @property
    def is_float(self) -> bool:
        return self.dtype in WHOLE_LIMIT


@dataclass(frozen=True)
class Style:
    """The spelling of a program's annotations."""

    gspmd: bool
    shardy: bool


STYLES = (Style(True, False), Style(False, True), Style(True, True))


#: Device at each position of a mesh, None for 0..n-1.
Order = tuple[int, ...] | None


@dataclass(frozen=True)
class OtherMesh:
    """The same devices laid out another way: its strides need not nest with the first's, nor its order agree."""

    axes: dict[str, int]
    order: Order


@dataclass
class Writer(Dice):
    """Writes into one computation. ``parameters`` is set for the entry only: new inputs may be asked for."""

    rng: np.random.Generator
    module: HloModule
    builder: Builder
    mesh: dict[str, int]
    style: Style
    pool: list[Value] = field(default_factory=list)
    parameters: list[Value] | None = None
    #: Mesh axes that annotations may use: all, but for the manual ones in a manual region.
    free_axes: list[str] = field(default_factory=list)
    #: Loops, branches and calls may be written: everywhere but within them.
    may_nest: bool = True
    #: The operation that the program is to be about, "" for none.
    focus: str = ""
    #: Cells of the table that the program aims at (steering.py).
    aims: tuple[Cell, ...] = ()
    #: Instructions that were annotated for the cells, in this computation.
    steered: list[tuple[Cell, HloInstruction]] = field(default_factory=list)
    order: Order = None
    other: OtherMesh | None = None
    mesh_name: str = "mesh"
    annotate: Callable[[Writer, Value], Value] = lambda _, value: value

    @property
    def manual_axes(self) -> list[str]:
        """Mesh axes of the manual region that is written into."""
        return [a for a in self.mesh if a not in self.free_axes]

    # ---- dice
    def aimed(self, rows: Sequence[T], name: Callable[[T], str]) -> T:
        """One of ``rows``: mostly one that the program aims at, where there is one."""
        wanted = [row for row in rows if any(name(row) == cell.row for cell in self.aims)]
        return self.choose(wanted if wanted and self.chance(0.8) else rows)

    def opcode(self, *opcodes: Opcode) -> Opcode:
        return self.aimed(opcodes, lambda opcode: opcode.value)

    def aims_at(self, *rows: str) -> bool:
        return any(cell.row in rows for cell in self.aims)

    def wants(self, row: Opcode, kind: str) -> bool:
        """The program aims at this kind of factor of this op."""
        return any((cell.row, cell.kind) == (row.value, kind) for cell in self.aims)

    def size(self) -> int:
        if self.chance(0.01):
            return 0
        if self.aims and self.chance(0.65):
            return self.choose(SIZES_OF.get(self.choose(self.aims).column, SIZES))
        return self.choose(SIZES)

    def dims(self, rank: int) -> tuple[int, ...]:
        while True:
            dims = tuple(self.size() for _ in range(rank))
            if math.prod(dims) <= MAX_ELEMENTS:
                return dims

    # ---- values
    def keep(self, value: Value) -> Value:
        """Take a result into the pool, with its bound brought back into range."""
        if value.is_float:
            value = self._scaled(value)
        self.pool.append(value)
        return value

    def _scaled(self, value: Value) -> Value:
        limit = SIZE_LIMIT[value.dtype]
        if value.bound > limit:
            exponent = math.ceil(math.log2(value.bound / limit)) + 1
            b = self.builder
            factor = b.broadcast_scalar(b.scalar(value.dtype, 2.0**-exponent), value.dims)
            hlo = b.multiply(value.hlo, factor)
            return Value(hlo, value.bound * 2.0**-exponent, whole=False, stable=value.stable)
        if value.whole and value.bound > WHOLE_LIMIT[value.dtype]:
            return Value(value.hlo, value.bound, whole=False, stable=value.stable)
        return value

    def result(self, hlo: HloInstruction, bound: float, *parents: Value) -> Value:
        """A value that is as whole and stable as all its parents."""
        whole = all(p.whole for p in parents)
        return Value(hlo, bound, whole, all(p.stable for p in parents))

    def pick(self, accept: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """A value of the pool, later ones more likely; None where none is accepted."""
        found = [value for value in self.pool if accept(value)]
        if not found:
            return None
        position = int(len(found) * self.rng.random() ** 0.6)
        return found[min(position, len(found) - 1)]

    def floats(self, accept: Callable[[Value], bool] = lambda _: True) -> Value:
        """A floating value of rank 1 or more; a new one where the pool has none."""
        found = self.pick(lambda v: v.is_float and v.rank > 0 and accept(v))
        if found is not None:
            return found
        return self.fresh(F32, self.dims(self.integer(1, 3)))

    def of(self, dtype: PrimitiveType, dims: tuple[int, ...]) -> Value:
        """A value of exactly this type and these sizes: one of the pool, or a new one."""
        found = self.pick(lambda v: v.dtype is dtype and v.dims == dims)
        return found if found is not None and self.chance(0.8) else self.fresh(dtype, dims)

    def fitting(self, dtype: PrimitiveType) -> Value:
        """A new value whose sizes stand in the column of a cell that the program aims at."""
        sizes = SIZES_OF.get(self.choose(self.aims).column, SIZES)
        dims = tuple(self.choose(sizes) for _ in range(self.integer(1, 3)))
        return self.fresh(dtype, dims if math.prod(dims) <= MAX_ELEMENTS else dims[:1])

    def fresh(self, dtype: PrimitiveType, dims: tuple[int, ...]) -> Value:
        """A new leaf: a parameter where there may be one, an iota, or a (broadcast) constant."""
        if self.parameters is not None and len(self.parameters) < 5 and self.chance(0.75):
            return self.parameter(dtype, dims)
        if dims and dtype is not PRED and self.chance(0.5):
            dimension = self.integer(0, len(dims) - 1)
            hlo = self.builder.iota(dtype, dims, dimension)
            return self._leaf(hlo, max(1.0, float(dims[dimension])))
        number = self.integer(0, 1) if dtype in (PRED, U8, U32, U64) else self.integer(-3, 3)
        scalar = self.builder.scalar(dtype, number)
        if dims and self.chance(0.3) and dtype is F32:
            return self._leaf(self.dense_constant(dims), 4.0)
        return self._leaf(self.builder.broadcast_scalar(scalar, dims), 3.0)

    def dense_constant(self, dims: tuple[int, ...]) -> HloInstruction:
        numbers = self.rng.integers(-4, 5, dims).astype(np.float32)
        return self.builder.constant(Literal.of(ArrayShape(F32, dims), numbers))

    def _leaf(self, hlo: HloInstruction, bound: float) -> Value:
        value = Value(hlo, bound)
        self.pool.append(value)
        return value

    def parameter(self, dtype: PrimitiveType, dims: tuple[int, ...]) -> Value:
        """A new entry parameter. Floats hold whole numbers, or one in four times any reals."""
        assert self.parameters is not None
        number = len(self.parameters)
        reals = dtype in WHOLE_LIMIT and self.chance(0.25)
        name = f"{'real' if reals else 'arg'}.{number}"
        hlo = self.builder.parameter(number, ArrayShape(dtype, dims), name=name)
        value = Value(hlo, math.inf if dtype.is_integer else 4.0, whole=not reals)
        self.parameters.append(value)
        self.pool.append(value)
        return value

    def small(self, value: Value, bound: int) -> Value:
        """An integer value clamped into [-bound, bound] ([0, bound] where it has no sign)."""
        if value.bound <= bound:
            return value
        b = self.builder
        low = 0 if value.dtype.is_unsigned_integer else -bound
        hlo = b.clamp(b.scalar(value.dtype, low), value.hlo, b.scalar(value.dtype, bound))
        return Value(hlo, float(bound), value.whole, value.stable)

    def index(self, reach: int) -> HloInstruction:
        """A scalar s32 in or slightly out of [0, reach]: a constant, or one that only the run knows."""
        scalar = self.pick(lambda v: v.dtype is S32 and v.rank == 0)
        if scalar is not None and self.chance(0.6):
            return scalar.hlo
        if self.parameters is not None and len(self.parameters) < 5 and self.chance(0.3):
            return self.parameter(S32, ()).hlo
        return self.builder.scalar(S32, self.integer(-1, max(reach, 0) + 1))


def inputs_of(module: HloModule, seed: int) -> list[np.ndarray[Any, np.dtype[Any]]]:
    """Inputs of the entry, decided by ``seed``: whole numbers in [-4, 4], reals where a name begins so."""
    rng = np.random.default_rng([seed, 1])
    return [_input(rng, p.array_shape, p.name) for p in module.entry.parameters]


def _input(
    rng: np.random.Generator, shape: ArrayShape, name: str
) -> np.ndarray[Any, np.dtype[Any]]:
    if shape.element_type is PRED:
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    if name.startswith("real"):
        return np.asarray(rng.uniform(-4, 4, shape.dims)).astype(shape.element_type.numpy)
    low = 0 if shape.element_type.is_unsigned_integer else -4
    return np.asarray(
        rng.integers(low, 10 if shape.element_type.is_integer else 5, shape.dims)
    ).astype(shape.element_type.numpy)
