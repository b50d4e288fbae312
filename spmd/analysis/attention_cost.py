"""Costs of fused attention: the calls of Transformer Engine, and those of cuDNN as XLA writes them.

With b batches, h heads, s queries and t keys of d elements: the forward call makes two products over b h s t pairs (the
scores, and their sums of values), the backward call five (the scores again; gradients of values, of scores, of queries
and of keys), and an exponential of each pair. A causal mask leaves half of the pairs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeAlias

from spmd.custom_call import register_custom_call
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.custom_call import custom_call_target
from spmd.ops.opdef import OpCost
from spmd.shape import as_array

_FORWARD, _BACKWARD = 2, 5
#: NVTE_Mask_Type values: causal, padding and causal, and both from the bottom right.
_NVTE_CAUSAL = ("2", "3", "4", "5")
_NVTE_OPTION = re.compile(r"(\w+) = ([-+.\w]+)")
_CUDNN_PAIRS = re.compile(r'"intermediate_tensor_shape":\{[^{}]*?"dimensions":\[([^\]]*)\]')
_CUDNN_CAUSAL = re.compile(r'"mask_type":"\w*CAUSAL"')


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Shape of fused attention: elements of a head, keys of a sequence, direction, and whether the mask is causal."""

    depth: int
    keys: int
    backward: bool = False
    causal: bool = False


def attention_shape(call: HloInstruction) -> AttentionShape | None:
    """Return the shape of a call of fused attention; None for any other custom call."""
    known = _CALLS.get(custom_call_target(call))
    if known is None:
        return None
    read, backward = known
    _, keys, depth, causal = read(call)
    return AttentionShape(depth, keys, backward, causal)


#: (pairs of queries and keys in all batches and heads, keys, elements of a head, whether the mask is causal)
_Sizes: TypeAlias = tuple[int, int, int, bool]


def _transformer_engine(call: HloInstruction) -> _Sizes:
    """Return the sizes of a Transformer Engine call. q is [b,s,h,d], k is [b,t,..]."""
    settings = dict(_NVTE_OPTION.findall(call.annotations.backend_config))
    q, k = (as_array(call.operand(i).shape).dims for i in (0, 1))
    return q[0] * q[2] * q[1] * k[1], k[1], q[3], settings.get("mask_type") in _NVTE_CAUSAL


def _cudnn(call: HloInstruction) -> _Sizes:
    """Return the sizes of a cuDNN call. The configuration has the scores' sizes, [b,h,s,t]; q ends in d."""
    config = call.annotations.backend_config
    found = _CUDNN_PAIRS.search(config)
    sizes = [int(size) for size in re.findall(r"\d+", found.group(1))] if found else []
    depth = as_array(call.operand(0).shape).dims[-1]
    return math.prod(sizes), sizes[-1] if sizes else 0, depth, bool(_CUDNN_CAUSAL.search(config))


def _cost(call: HloInstruction) -> OpCost:
    """Return the cost of a call of fused attention."""
    read, backward = _CALLS[custom_call_target(call)]
    pairs, _, depth, causal = read(call)
    seen = pairs / 2 if causal else float(pairs)
    products = _BACKWARD if backward else _FORWARD
    return OpCost(flops=2.0 * products * seen * depth, transcendentals=seen)


#: By custom-call target, how the sizes are read, and whether it is a backward call.
_CALLS: dict[str, tuple[Callable[[HloInstruction], _Sizes], bool]] = {
    "te_fused_attn_forward_ffi": (_transformer_engine, False),
    "te_fused_attn_backward_ffi": (_transformer_engine, True),
    **{
        f"__cudnn$fmha{kind}{direction}{suffix}": (_cudnn, direction == "Backward")
        for kind, suffix in (
            ("Softmax", ""),
            ("SoftmaxDropout", ""),
            ("ScaleBiasSoftmax", ""),
            ("ScaleBiasSoftmaxDropout", ""),
            ("Softmax", "F8"),
        )
        for direction in ("", "Backward")
    },
}

for _target in _CALLS:
    register_custom_call(_target, cost=_cost)
