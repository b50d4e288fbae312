"""Fused attention as Transformer Engine calls it from JAX: te_fused_attn_forward_ffi, te_fused_attn_backward_ffi.

    (out, statistics [b,h,s,1], rng state, workspace) forward(q, k, v, bias, seed, q_ends, kv_ends, ..)
    (dq, dk, dv, dbias, workspace) backward(q, k, v, bias, statistics, rng state, out, dout, q_ends, kv_ends, ..)

Positions come before heads. In layout 7 k contains keys and values, [b,t,2,g,d]. The ends are s32[b+1], cumulative
lengths. Numbers of masks and layouts follow NVTE's enums; dropout, bias and windows are refused.
"""

from __future__ import annotations

import re

from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.library_calls.attention.call import (
    ATTENTION_CALLS,
    POSITIONS_FIRST,
    AttentionCall,
    AttentionMask,
)
from spmd.ops.custom_call import custom_call_target

_OPTION = re.compile(r"(\w+) = ([-+.\w]+)")
#: NVTE_QKV_Layout: k and v in one array; all in arrays of their own.
_KV_PACKED, _SEPARATE = "7", "9"
#: NVTE_Mask_Type values.
_MASKS = {
    "0": AttentionMask(),
    "1": AttentionMask(padded=True),
    "2": AttentionMask(causal=True),
    "3": AttentionMask(causal=True, padded=True),
}
#: Values of settings that are known, the default first.
_KNOWN = {
    "bias_type": ("0",),
    "window_size_left": ("-1",),
    "window_size_right": ("-1", "0"),
    "mask_type": tuple(_MASKS),
    "qkv_layout": (_SEPARATE, _KV_PACKED),
}


def read_call(instruction: HloInstruction) -> AttentionCall:
    """Read a call of Transformer Engine. Raises UnsupportedError for settings that are not known."""
    settings = dict(_OPTION.findall(instruction.annotations.backend_config))
    for name, values in _KNOWN.items():
        if settings.setdefault(name, values[0]) not in values:
            raise UnsupportedError(
                f"{instruction!r}: fused attention with {name} = {settings[name]} is not evaluated"
            )
    if float(settings.get("dropout_probability", 0)):
        raise UnsupportedError(f"{instruction!r}: fused attention with dropout is not evaluated")
    packed = settings["qkv_layout"] == _KV_PACKED
    operands: tuple[str, ...] = ("q", "k", "" if packed else "v", "")  # and a bias, which is empty
    results: tuple[str, ...]
    if "backward" in custom_call_target(instruction):
        operands += ("statistics", "", "out", "dout")
        results = ("dq", "dkv") if packed else ("dq", "dk", "dv")
    else:
        operands += ("",)
        results = ("out", "statistics")
    operands += ("q_lengths", "kv_lengths")
    if instruction.num_operands < len(operands):
        raise UnsupportedError(f"{instruction!r}: at least {len(operands)} operands are expected")
    return AttentionCall(
        instruction,
        operands,
        results,
        POSITIONS_FIRST,
        POSITIONS_FIRST,
        _MASKS[settings["mask_type"]],
        float(settings.get("scaling_factor", 1.0)),
        packed,
        cumulative=True,
    )


for _direction in ("forward", "backward"):
    ATTENTION_CALLS.add(f"te_fused_attn_{_direction}_ffi", read_call)
