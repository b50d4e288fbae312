"""Loads and stores of tiles: indices, masks and addresses of arrays with any strides."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.gpu.triton.axes import Axes, Axis, AxisKind, Blocks, expanded, tile_axes
from runtime.gpu.triton.lines import Level, Lines
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.program.strides import StridedView
from spmd.shape import PrimitiveType

#: Largest offset, in elements, that 32-bit arithmetic computes.
_MOST_32 = 2**31 - 1


class TileMemory:
    """Writer of the indices of a kernel's axes, and of loads and stores.

    In the kernel, ``start`` is the first index of the loop's block, and ``bN`` the index of batch axis N.
    """

    def __init__(self, lines: Lines, blocks: Blocks) -> None:
        self._lines, self._blocks = lines, blocks

    def index(self, axis: Axis) -> str:
        """Return the name of the index along ``axis``: a vector, or a number for a batch axis."""
        if not axis.is_vector:
            return f"b{axis.number}"
        block = f"tl.arange(0, {self._blocks.length(axis)})"
        if axis.kind is AxisKind.DEPTH:
            return self._lines.assigned(Level.PROLOGUE, block)
        if axis.kind is AxisKind.GRID:
            return self._lines.assigned(Level.PROLOGUE, f"first + {block}")
        return self._lines.assigned(Level.LOOP, f"start + {self._within(axis)}")

    def _within(self, axis: Axis) -> str:
        """Return the index relative to ``start`` for the loop's axis, and the index for others."""
        if axis.kind is not AxisKind.LOOP:
            return self.index(axis)
        return self._lines.assigned(Level.PROLOGUE, f"tl.arange(0, {self._blocks.length(axis)})")

    def inside(self, axis: Axis) -> str | None:
        """Return the name of the vector that is true within ``axis``, or None if no block reaches beyond its end."""
        if not self._blocks.is_partial(axis):
            return None
        level = Level.LOOP if axis.kind is AxisKind.LOOP else Level.PROLOGUE
        return self._lines.assigned(level, f"{self.index(axis)} < {axis.size}")

    def load(self, pointer: str, view: StridedView, axes: Axes) -> tuple[str, Level]:
        """Return the name of the tile of an array with ``axes``, and the part of the kernel that loads it.

        Elements beyond the ends are 0.
        """
        pointers = self._pointers(pointer, view, axes)
        mask = self._mask(axes)
        level = Level.LOOP if any(a.varies_in_loop for a in axes) else Level.PROLOGUE
        text = f"tl.load({pointers}{f', mask={mask}, other=0' if mask else ''})"
        if view.element_type is PrimitiveType.PRED:
            text = f"{text} != 0"
        return self._lines.assigned(level, text), level

    def store(self, pointer: str, view: StridedView, axes: Axes, value: str) -> None:
        """Add the store of the tile ``value``, which has the array's type, to the end of the kernel."""
        pointers, mask = self._pointers(pointer, view, axes), self._mask(axes)
        self._lines.add(
            Level.EPILOGUE, f"tl.store({pointers}, {value}{f', mask={mask}' if mask else ''})"
        )

    def _mask(self, axes: Axes) -> str:
        own = tile_axes(axes)
        inside = [(axis, self.inside(axis)) for axis in own]
        return " & ".join(expanded(name, (axis,), own) for axis, name in inside if name)

    def _pointers(self, pointer: str, view: StridedView, axes: Axes) -> str:
        """Return the pointers of a tile. What does not change in the loop is computed before it."""
        if len(set(axes)) < len(axes):
            raise NoTritonKernelError("an array with two dimensions along one axis")
        strides = dict(zip(axes, element_strides(view), strict=True))
        wide = needs_64_bits((axis.size, stride) for axis, stride in strides.items())
        own = tile_axes(axes)
        pointers = pointer
        for axis in axes:
            if axis.kind is AxisKind.BATCH and strides[axis]:
                pointers += f" + {scaled(f'b{axis.number}', strides[axis], wide)}"
        if pointers != pointer:
            pointers = self._lines.assigned(Level.PROLOGUE, pointers)
        terms = [
            scaled(expanded(self._within(axis), (axis,), own), strides[axis], wide) for axis in own
        ]
        if terms:
            pointers = self._lines.assigned(Level.PROLOGUE, " + ".join([pointers, *terms]))
        moves = [(f"b{a.number}", strides[a]) for a in axes if a.kind is AxisKind.STEP]
        moves += [("start", strides[a]) for a in own if a.kind is AxisKind.LOOP]
        moved = " + ".join(scaled(name, stride, wide) for name, stride in moves if stride)
        return f"{pointers} + ({moved})" if moved else pointers


def needs_64_bits(steps: Iterable[tuple[int, int]]) -> bool:
    """Return whether offsets need 64 bits in an array with dimensions of sizes and strides ``steps``."""
    return sum((size - 1) * abs(stride) for size, stride in steps) > _MOST_32


def element_strides(view: StridedView) -> tuple[int, ...]:
    """Return the strides of ``view`` in elements. Raises NoTritonKernelError if they are no multiples of one."""
    width = view.element_type.byte_size
    if any(stride % width for stride in view.strides):
        raise NoTritonKernelError("strides that are no multiples of an element")
    return tuple(stride // width for stride in view.strides)


def scaled(name: str, stride: int, wide: bool) -> str:
    """Return the expression of ``name`` times ``stride``, computed in 64 bits if ``wide`` is True."""
    index = f"{name}.to(tl.int64)" if wide else name
    return index if stride == 1 else f"{index} * {stride}"
