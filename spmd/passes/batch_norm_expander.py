"""Write batch normalization as sums and elementwise operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import BatchNormAttrs
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import register_pass
from spmd.shape import ArrayShape, PrimitiveType


@register_pass
@dataclass(frozen=True)
class BatchNormExpander(OpExpander):
    """batch-norm-inference(x, scale, offset, mean, variance)

        =>  (x - mean) / sqrt(variance + epsilon) * scale + offset

    and likewise training, which also takes the mean and variance over all dimensions but the features', and grad. Types
    narrower than f32 compute in f32 and are rounded once, at the end.
    """

    name: ClassVar[str] = "batch-norm-expander"
    opcodes: ClassVar[tuple[Opcode, ...]] = (
        Opcode.BATCH_NORM_INFERENCE,
        Opcode.BATCH_NORM_TRAINING,
        Opcode.BATCH_NORM_GRAD,
    )

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction:
        return _EXPANSIONS[x.opcode](x, _Features(x, b))


class _Features:
    """Arithmetic between the entire array and values per feature, in f32 or wider."""

    def __init__(self, x: HloInstruction, b: Builder) -> None:
        shape = x.operand(0).array_shape
        attrs = x.attrs_as(BatchNormAttrs)
        self.b = b
        self.dims = shape.dims
        self._narrow = shape.element_type
        self._wide = PrimitiveType.F64 if self._narrow.bits == 64 else PrimitiveType.F32
        self._index = attrs.feature_index
        self._others = tuple(d for d in range(shape.rank) if d != attrs.feature_index)
        self._count = math.prod(shape.dims[d] for d in self._others)
        self._epsilon = attrs.epsilon

    def widened(self, x: HloInstruction) -> HloInstruction:
        return self.b.as_type(x, self._wide)

    def narrowed(self, x: HloInstruction) -> HloInstruction:
        return self.b.as_type(x, self._narrow)

    def spread(self, per_feature: HloInstruction) -> HloInstruction:
        return self.b.broadcast(per_feature, (self._index,), self.dims)

    def sum(self, x: HloInstruction) -> HloInstruction:
        return self.b.reduce(x, self._others, ReductionKind.SUM)

    def mean(self, x: HloInstruction) -> HloInstruction:
        total = self.sum(x)
        return self.b.divide(total, self._full(total.dims, self._count))

    def deviation(self, variance: HloInstruction) -> HloInstruction:
        """Return sqrt(variance + epsilon)."""
        raised = self.b.add(variance, self._full(variance.dims, self._epsilon))
        return self.b.unary(Opcode.SQRT, raised)

    def reciprocal(self, x: HloInstruction) -> HloInstruction:
        return self.b.divide(self._full(x.dims, 1), x)

    def _full(self, dims: tuple[int, ...], value: float) -> HloInstruction:
        return self.b.full(ArrayShape(self._wide, dims), value)


def _inference(x: HloInstruction, f: _Features) -> HloInstruction:
    data, scale, offset, mean, variance = map(f.widened, x.operands)
    centred = f.b.subtract(data, f.spread(mean))
    return f.narrowed(_normalized(f, centred, variance, scale, offset))


def _training(x: HloInstruction, f: _Features) -> HloInstruction:
    """Return (normalized, mean, variance)."""
    data, scale, offset = map(f.widened, x.operands)
    mean = f.mean(data)
    centred = f.b.subtract(data, f.spread(mean))
    variance = f.mean(f.b.multiply(centred, centred))
    normalized = _normalized(f, centred, variance, scale, offset)
    return f.b.tuple([f.narrowed(part) for part in (normalized, mean, variance)])


def _normalized(
    f: _Features,
    centred: HloInstruction,
    variance: HloInstruction,
    scale: HloInstruction,
    offset: HloInstruction,
) -> HloInstruction:
    normal = f.b.divide(centred, f.spread(f.deviation(variance)))
    return f.b.add(f.b.multiply(normal, f.spread(scale)), f.spread(offset))


def _grad(x: HloInstruction, f: _Features) -> HloInstruction:
    """Return the gradients of the operand, of the scale and of the offset."""
    b = f.b
    data, scale, mean, variance, grad = map(f.widened, x.operands)
    inverse = f.reciprocal(f.deviation(variance))
    normal = b.multiply(b.subtract(data, f.spread(mean)), f.spread(inverse))
    weighted = b.multiply(grad, normal)
    centred = b.subtract(
        b.subtract(grad, f.spread(f.mean(grad))), b.multiply(normal, f.spread(f.mean(weighted)))
    )
    grad_data = b.multiply(f.spread(b.multiply(scale, inverse)), centred)
    return b.tuple([f.narrowed(part) for part in (grad_data, f.sum(weighted), f.sum(grad))])


_EXPANSIONS: dict[Opcode, Callable[[HloInstruction, _Features], HloInstruction]] = {
    Opcode.BATCH_NORM_INFERENCE: _inference,
    Opcode.BATCH_NORM_TRAINING: _training,
    Opcode.BATCH_NORM_GRAD: _grad,
}
