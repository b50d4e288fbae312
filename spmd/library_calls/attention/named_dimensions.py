"""Arrays whose dimensions have letters, as those of an einsum: products and transposes that are stated by them."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class NamedArray:
    """An array; letter i of ``names`` is the name of dimension i."""

    array: HloInstruction
    names: str

    def dimensions(self, names: str) -> tuple[int, ...]:
        """Return the numbers of the dimensions with these names."""
        return tuple(map(self.names.index, names))

    def size(self, name: str) -> int:
        return self.array.dims[self.names.index(name)]

    def transposed(self, names: str, b: Builder) -> NamedArray:
        """Return the array with its dimensions in the order of ``names``."""
        return NamedArray(b.transpose_by(self.array, self.dimensions(names)), names)

    def as_type(self, kind: PrimitiveType, b: Builder) -> NamedArray:
        return NamedArray(b.as_type(self.array, kind), self.names)

    def broadcast(self, x: NamedArray, b: Builder) -> HloInstruction:
        """Return the array broadcast to the dimensions of ``x``, among which its own are."""
        return b.broadcast(self.array, x.dimensions(self.names), x.array.dims)


def product(
    x: NamedArray, y: NamedArray, names: str, kind: PrimitiveType, b: Builder
) -> NamedArray:
    """Return the product with dimensions ``names``, summed in ``kind`` over the others that both arrays have.

    Dimensions that both have are batch dimensions, and the first ones of ``names``.
    """
    shared = [name for name in x.names if name in y.names]
    batch = "".join(name for name in names if name in shared)
    summed = "".join(name for name in shared if name not in names)
    attrs = DotAttrs(
        x.dimensions(summed), y.dimensions(summed), x.dimensions(batch), y.dimensions(batch)
    )
    free = [name for one in (x, y) for name in one.names if name not in shared]
    made = NamedArray(b.dot(x.array, y.array, attrs, kind), "".join((batch, *free)))
    return made.transposed(names, b)
