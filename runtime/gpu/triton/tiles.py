"""Values of a fused computation as tiles of a Triton kernel.

A value is computed for given axes of its dimensions. One instruction may be needed for several: JAX's causal masks
compare the same iota along rows and along columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.gpu.triton.axes import Axes, Axis, AxisKind, Blocks, expanded, tile_axes
from runtime.gpu.triton.elements import cast, literal, operation, type_name
from runtime.gpu.triton.lines import Level, Lines
from runtime.gpu.triton.memory import TileMemory
from runtime.gpu.triton.products import TileProduct
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConstantAttrs, DimensionsAttrs, DotAttrs, IotaAttrs, ParameterAttrs
from spmd.ops.dot import free_dims
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of a kernel. axes: axes of its dimensions; empty for a scalar, which all elements equal.

    kind: element type. level: part of the kernel that computes it. is_full: no dimension has size 1 in its place.
    """

    name: str
    kind: PrimitiveType
    axes: Axes
    level: Level
    is_full: bool = True


class Tiles:
    """Writer of the tiles of a fused computation.

    operands: layouts of the arrays behind pointers p0, p1, ... tf32: products of f32 may round their operands to TF32.
    """

    def __init__(
        self, operands: Sequence[StridedView], blocks: Blocks, lines: Lines, *, tf32: bool
    ) -> None:
        self.memory = TileMemory(lines, blocks)
        self._operands, self._blocks, self._lines, self._tf32 = operands, blocks, lines, tf32
        self._bound: dict[tuple[HloInstruction, Axes], Tile] = {}
        #: Instructions that have the value of another one within the loop.
        self.aliases: dict[HloInstruction, HloInstruction] = {}

    def bind(self, x: HloInstruction, axes: Axes, tile: Tile) -> None:
        """Make ``tile`` the value of ``x`` for ``axes``."""
        self._bound[x, axes] = tile

    def value(self, x: HloInstruction, axes: Axes) -> Tile:
        """Return the tile of ``x`` for ``axes``. Raises NoTritonKernelError if there is none."""
        while x in self.aliases:
            x = self.aliases[x]
        if (x, axes) not in self._bound:
            self._bound[x, axes] = self._computed(x, axes)
        return self._bound[x, axes]

    def rows(self, x: HloInstruction, axes: Axes) -> Tile:
        """Return the tile along the rows of ``x``, which has the score dimensions ``axes`` but is constant along rows.

        The tile has no dimension for the columns, which are the last axis.
        """
        *others, columns = axes
        return self.full(x, (*others, Axis(AxisKind.BATCH, columns.size, columns.number)))

    def _computed(self, x: HloInstruction, axes: Axes) -> Tile:
        match x.opcode:
            case Opcode.PARAMETER:
                return self._loaded(x, axes)
            case Opcode.CONSTANT:
                return self._constant(x)
            case Opcode.IOTA:
                return self._iota(x, axes)
            case Opcode.BROADCAST:
                return self._broadcast(x, axes)
            case Opcode.DOT:
                return self._score_product(x, axes)
            case Opcode.REDUCE:
                raise NoTritonKernelError(f"{x.name} is needed before it is complete")
        operands = [self.value(operand, axes) for operand in x.operands]
        levels = {tile.level for tile in operands}
        if {Level.LOOP, Level.EPILOGUE} <= levels:
            raise NoTritonKernelError(f"{x.name}: scores combined with results")
        level = max(levels)
        own = max((tile.axes for tile in operands), key=len)
        text = self._quotient(x, operands) or operation(x, [tile.name for tile in operands])
        is_full = not own or any(tile.is_full for tile in operands if tile.axes)
        return Tile(self._lines.assigned(level, text), _type(x), own, level, is_full)

    def _quotient(self, x: HloInstruction, operands: Sequence[Tile]) -> str:
        """Return the product with a reciprocal that computes an f32 quotient by a scalar or a value per row or column.

        It takes fewer of the slow reciprocals. Returns "" for all other operations.
        """
        if x.opcode is not Opcode.DIVIDE or _type(x) is not PrimitiveType.F32:
            return ""
        number, divisor = operands
        if (divisor.axes and divisor.is_full) or not (number.axes and number.is_full):
            return ""
        return f"{number.name} * {self._lines.assigned(divisor.level, f'1.0 / {divisor.name}')}"

    def _loaded(self, x: HloInstruction, axes: Axes) -> Tile:
        number = x.attrs_as(ParameterAttrs).number
        name, level = self.memory.load(f"p{number}", self._operands[number], axes)
        return Tile(name, _type(x), tile_axes(axes), level)

    def _constant(self, x: HloInstruction) -> Tile:
        given = x.attrs_as(ConstantAttrs).literal
        if given is None or not given.is_scalar:
            raise NoTritonKernelError(f"{x.name}: a constant that is no scalar")
        kind = _type(x)
        name = self._lines.assigned(Level.PROLOGUE, literal(given.value(), kind))
        return Tile(name, kind, (), Level.PROLOGUE)

    def _iota(self, x: HloInstruction, axes: Axes) -> Tile:
        axis = axes[x.attrs_as(IotaAttrs).dimension]
        level = Level.LOOP if axis.varies_in_loop else Level.PROLOGUE
        own = tile_axes(axes) if axis.is_vector else ()
        index = expanded(self.memory.index(axis), (axis,), own) if own else f"b{axis.number}"
        name = self._lines.assigned(level, f"{index}.to({type_name(_type(x))})")
        return Tile(name, _type(x), own, level, is_full=len(own) < 2)

    def _broadcast(self, x: HloInstruction, axes: Axes) -> Tile:
        dimensions = x.attrs_as(DimensionsAttrs).dimensions
        given = self.value(x.operand(0), tuple(axes[d] for d in dimensions))
        own = tile_axes(axes)
        if not given.axes or given.axes == own:
            return given
        name = self._lines.assigned(given.level, expanded(given.name, given.axes, own))
        return Tile(name, given.kind, own, given.level, is_full=False)

    def _score_product(self, x: HloInstruction, axes: Axes) -> Tile:
        tiles = [
            self.full(operand, own)
            for operand, own in zip(x.operands, _factor_axes(x, axes), strict=True)
        ]
        grid, loop = sorted(tiles, key=lambda tile: tile.axes[0].kind)
        if [axis.kind for tile in (grid, loop) for axis in tile.axes] != [
            *(AxisKind.GRID, AxisKind.DEPTH),
            *(AxisKind.LOOP, AxisKind.DEPTH),
        ]:
            raise NoTritonKernelError(f"{x.name}: no product of rows and columns")
        level = max(grid.level, loop.level)
        product = self.product(x, grid, loop, transposed=True)
        text = cast(product, PrimitiveType.F32, _type(x))
        own = (grid.axes[0], loop.axes[0])
        return Tile(self._lines.assigned(level, text), _type(x), own, level)

    def full(self, x: HloInstruction, axes: Axes) -> Tile:
        """Return the tile of ``x`` for ``axes``, all of whose dimensions have the sizes of blocks."""
        tile = self.value(x, axes)
        own = tile_axes(axes)
        if tile.axes and tile.is_full:
            return tile
        sizes = ", ".join(str(self._blocks.length(axis)) for axis in own)
        text = f"tl.broadcast_to({tile.name}, [{sizes}])"
        return Tile(self._lines.assigned(tile.level, text), tile.kind, own, tile.level)

    def product(
        self,
        dot: HloInstruction,
        left: Tile,
        right: Tile,
        *,
        transposed: bool = False,
        acc: str = "",
    ) -> str:
        """Return the expression of ``left`` times ``right``, plus ``acc``, in f32, as precise as ``dot`` requires.

        transposed: ``right`` is transposed.
        """
        kinds = {operand.array_shape.element_type for operand in dot.operands}
        made = TileProduct.of(kinds, dot.attrs_as(DotAttrs), tf32=self._tf32)
        factors = ((tile.name, tile.kind) for tile in (left, right))
        return made.text(*factors, transposed=transposed, acc=acc)


def _type(x: HloInstruction) -> PrimitiveType:
    return x.array_shape.element_type


def _factor_axes(dot: HloInstruction, axes: Axes) -> tuple[Axes, Axes]:
    """Return the axes of both operands of the score product ``dot``, whose result has ``axes``."""
    attrs = dot.attrs_as(DotAttrs)
    lhs, rhs = dot.operands
    made: list[list[Axis]] = []
    free_axes = list(axes[len(attrs.lhs_batch) :])
    for x, batch, contracting in (
        (lhs, attrs.lhs_batch, attrs.lhs_contracting),
        (rhs, attrs.rhs_batch, attrs.rhs_contracting),
    ):
        own = [Axis(AxisKind.DEPTH, size) for size in x.dims]
        for d, axis in zip(batch, axes, strict=False):
            own[d] = axis
        for d in free_dims(len(own), batch, contracting):
            own[d] = free_axes.pop(0)
        made.append(own)
    return tuple(made[0]), tuple(made[1])
