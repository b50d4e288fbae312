"""Costs of fused attention: the calls of Transformer Engine, and those of cuDNN as XLA writes them.

With b batches, h heads, s queries and t keys of d elements: the forward call makes two products over b h s t pairs (the
scores, and their sums of values), the backward call five (the scores again; gradients of values, of scores, of queries
and of keys), and an exponential of each pair. A causal mask leaves half of the pairs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from spmd.custom_call import register_custom_call
from spmd.hlo.instruction import HloInstruction
from spmd.ops.opdef import OpCost
from spmd.shape import as_array

_FORWARD, _BACKWARD = 2, 5
#: NVTE_Mask_Type values: causal, padding and causal, and both from the bottom right.
_NVTE_CAUSAL = ("2", "3", "4", "5")
_NVTE_OPTION = re.compile(r"(\w+) = ([-+.\w]+)")
_CUDNN_PAIRS = re.compile(r'"intermediate_tensor_shape":\{[^{}]*?"dimensions":\[([^\]]*)\]')
_CUDNN_CAUSAL = re.compile(r'"mask_type":"\w*CAUSAL"')


def _cost(products: int, pairs: float, depth: int) -> OpCost:
    return OpCost(flops=2.0 * products * pairs * depth, transcendentals=pairs)


def _transformer_engine(products: int) -> Callable[[HloInstruction], OpCost]:
    def cost(call: HloInstruction) -> OpCost:
        """Return the cost of a Transformer Engine call. q is [b,s,h,d], k is [b,t,..]."""
        settings = dict(_NVTE_OPTION.findall(call.annotations.backend_config))
        q, k = (as_array(call.operand(i).shape).dims for i in (0, 1))
        pairs = float(q[0] * q[2] * q[1] * k[1])
        if settings.get("mask_type") in _NVTE_CAUSAL:
            pairs /= 2
        return _cost(products, pairs, q[3])

    return cost


def _cudnn(products: int) -> Callable[[HloInstruction], OpCost]:
    def cost(call: HloInstruction) -> OpCost:
        """Return the cost of a cuDNN call. The configuration has the scores' sizes, [b,h,s,t]; q ends in d."""
        config = call.annotations.backend_config
        found = _CUDNN_PAIRS.search(config)
        sizes = re.findall(r"\d+", found.group(1)) if found else []
        pairs = float(math.prod(map(int, sizes)))
        if _CUDNN_CAUSAL.search(config):
            pairs /= 2
        return _cost(products, pairs, as_array(call.operand(0).shape).dims[-1])

    return cost


#: Cost functions by custom-call target.
FUSED_ATTENTION: dict[str, Callable[[HloInstruction], OpCost]] = {
    "te_fused_attn_forward_ffi": _transformer_engine(_FORWARD),
    "te_fused_attn_backward_ffi": _transformer_engine(_BACKWARD),
    "__cudnn$fmhaSoftmax": _cudnn(_FORWARD),
    "__cudnn$fmhaSoftmaxBackward": _cudnn(_BACKWARD),
    "__cudnn$fmhaSoftmaxDropout": _cudnn(_FORWARD),
    "__cudnn$fmhaSoftmaxDropoutBackward": _cudnn(_BACKWARD),
    "__cudnn$fmhaScaleBiasSoftmax": _cudnn(_FORWARD),
    "__cudnn$fmhaScaleBiasSoftmaxBackward": _cudnn(_BACKWARD),
    "__cudnn$fmhaScaleBiasSoftmaxDropout": _cudnn(_FORWARD),
    "__cudnn$fmhaScaleBiasSoftmaxDropoutBackward": _cudnn(_BACKWARD),
    "__cudnn$fmhaSoftmaxF8": _cudnn(_FORWARD),
    "__cudnn$fmhaSoftmaxBackwardF8": _cudnn(_BACKWARD),
}

for _target, _of_target in FUSED_ATTENTION.items():
    register_custom_call(_target, cost=_of_target)
