"""Write calls of fused attention as products, exponentials and sums."""

from __future__ import annotations

from typing import ClassVar

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.library_calls.attention import LIBRARIES  # noqa: F401 - fills the table
from spmd.library_calls.attention.call import is_attention_call
from spmd.library_calls.attention.expansion import expanded_attention
from spmd.library_calls.registry import Expansion
from spmd.passes.call_expansion import expand_calls
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class AttentionExpander(FueledPass):
    """Replace custom calls of cuDNN's and Transformer Engine's fused attention, forward and backward.

        o = (bf16[2,8,64,16], u8[0]) custom-call(q, k, v),         x = f32[2,8,64,64] dot(q, k)
            custom_call_target="__cudnn$fmhaSoftmax",          =>  m = f32[2,8,64] reduce(x), to_apply=max
            backend_config={..}                                    e = f32[2,8,64,64] exponential(x - m)
                                                                   l = f32[2,8,64] reduce(e), to_apply=add
                                                                   p = bf16[2,8,64,64] convert(e / l)
                                                                   o = f32[2,8,64,16] dot(p, v)

    It runs on the program of one device, because the partitioner has a rule for these calls: batches and heads are
    independent. A workspace contains zeros.
    """

    name: ClassVar[str] = "attention-expander"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        return expand_calls(module, fuel, _expansion)


def _expansion(call: HloInstruction) -> Expansion | None:
    return expanded_attention if is_attention_call(call) else None
