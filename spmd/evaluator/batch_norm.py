"""batch-norm-training, -inference and -grad: statistics per feature over all other dimensions."""

from __future__ import annotations

import math

import numpy as np

from spmd.evaluator.numerics import narrow, widen
from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import NDArray, Operands, Value, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import BatchNormAttrs


class _Features:
    """Broadcasts between per-feature vectors and full arrays."""

    def __init__(self, x: NDArray, attrs: BatchNormAttrs) -> None:
        self.axes = tuple(d for d in range(x.ndim) if d != attrs.feature_index)
        self.sizes = [-1 if d == attrs.feature_index else 1 for d in range(x.ndim)]
        self.epsilon = x.dtype.type(attrs.epsilon)

    def spread(self, per_feature: NDArray) -> NDArray:
        return per_feature.reshape(self.sizes)

    def mean(self, x: NDArray) -> NDArray:
        """Return the mean per feature; 0 / 0 if there are no elements."""
        count = x.dtype.type(math.prod(x.shape[d] for d in self.axes))
        return np.asarray(np.sum(x, axis=self.axes) / count)


@evaluates(Opcode.BATCH_NORM_TRAINING)
def evaluate_batch_norm_training(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: x, scale [f], offset [f]; result: (normalised, mean [f], variance [f])."""
    raw = arrays_of(operands)
    x, scale, offset = (widen(o) for o in raw)
    features = _Features(x, instruction.attrs_as(BatchNormAttrs))
    mean = features.mean(x)
    centred = x - features.spread(mean)
    variance = features.mean(centred * centred)
    normal = centred / np.sqrt(features.spread(variance) + features.epsilon)
    result = normal * features.spread(scale) + features.spread(offset)
    return tuple(narrow(r, raw[0].dtype) for r in (result, mean, variance))


@evaluates(Opcode.BATCH_NORM_INFERENCE)
def evaluate_batch_norm_inference(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: x, scale, offset, mean, variance (each [f])."""
    raw = arrays_of(operands)
    x, scale, offset, mean, variance = (widen(o) for o in raw)
    features = _Features(x, instruction.attrs_as(BatchNormAttrs))
    normal = (x - features.spread(mean)) / np.sqrt(features.spread(variance) + features.epsilon)
    return narrow(normal * features.spread(scale) + features.spread(offset), raw[0].dtype)


@evaluates(Opcode.BATCH_NORM_GRAD)
def evaluate_batch_norm_grad(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate. operands: x, scale, mean, variance (each [f]), grad_output; result: (grad x, grad scale, grad
    offset).
    """
    raw = arrays_of(operands)
    x, scale, mean, variance, grad = (widen(o) for o in raw)
    features = _Features(x, instruction.attrs_as(BatchNormAttrs))
    inverse = x.dtype.type(1) / np.sqrt(variance + features.epsilon)
    normal = (x - features.spread(mean)) * features.spread(inverse)
    grad_scale, grad_offset = (np.sum(g, axis=features.axes) for g in (grad * normal, grad))
    centred = (
        grad
        - features.spread(features.mean(grad))
        - normal * features.spread(features.mean(grad * normal))
    )
    grad_x = features.spread(scale * inverse) * centred
    return tuple(narrow(g, raw[0].dtype) for g in (grad_x, grad_scale, grad_offset))
