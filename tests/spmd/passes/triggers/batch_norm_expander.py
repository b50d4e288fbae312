"""Batch normalizations of all three kinds, along any dimension."""

from __future__ import annotations

from spmd.hlo import HloModule, Opcode
from spmd.ops.attrs import BatchNormAttrs
from tests.spmd.passes.triggers.programs import FLOATS, Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("batch-norm-expander")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    kind, dims = p.element_type(FLOATS), p.dims(1, empty=False)
    attrs = BatchNormAttrs(p.choose((0.0, 1e-3, 0.5)), p.integer(0, len(dims) - 1))
    x, features = p.value(kind, dims), (dims[attrs.feature_index],)
    scale, offset, mean = (p.value(kind, features) for _ in range(3))
    variance = p.b.add(p.b.multiply(mean, mean), p.b.full(mean.array_shape, 0.25))
    opcode, operands = {
        0: (Opcode.BATCH_NORM_TRAINING, (x, scale, offset)),
        1: (Opcode.BATCH_NORM_INFERENCE, (x, scale, offset, mean, variance)),
        2: (Opcode.BATCH_NORM_GRAD, (x, scale, mean, variance, p.value(kind, dims))),
    }[p.integer(0, 2)]
    return p.module(p.b.create(opcode, operands, attrs))
