"""Fused attention as Transformer Engine calls it from JAX: te_fused_attn_forward_ffi, te_fused_attn_backward_ffi.

    (out [b,s,h,d], log-sum-exp f32[b,h,s,1], rng state, workspace) forward(q, k, v, bias, seed, q_ends, kv_ends, ..)
    (dq, dk, dv, dbias, workspace) backward(q, k, v, bias, log-sum-exp, rng state, out, dout, q_ends, kv_ends, ..)

q is [b,s,h,d], k and v [b,t,g,d] with h / g heads of q for each; in layout 7 k holds both, [b,t,2,g,d]. The ends are
s32[b+1], cumulative lengths. Numbers of masks and layouts follow NVTE's enums; dropout, bias and windows are refused.
"""

from __future__ import annotations

import re

import numpy as np

from spmd.custom_call import register_custom_call
from spmd.errors import UnsupportedError
from spmd.evaluator.attention import Attention
from spmd.evaluator.numerics import widen
from spmd.evaluator.value import NDArray, Operands, Value, array_of
from spmd.hlo.instruction import HloInstruction
from spmd.shape import as_array, as_tuple

_OPTION = re.compile(r"(\w+) = ([-+.\w]+)")
#: Packed k and v; all separate.
_KV_PACKED, _APART = 7, 9
#: none, padding, causal, padding and causal.
_PADDED, _CAUSAL = (1, 3), (2, 3)


def _settings(instruction: HloInstruction) -> dict[str, str]:
    """Return the call's configuration. Raises UnsupportedError for settings without a reference here."""
    found = dict(_OPTION.findall(instruction.annotations.backend_config))
    wanted = {
        "bias_type": ("0",),
        "window_size_left": ("-1",),
        "window_size_right": ("-1", "0"),
        "mask_type": ("0", "1", "2", "3"),
        "qkv_layout": (str(_KV_PACKED), str(_APART)),
    }
    for name, values in wanted.items():
        if found.get(name, values[0]) not in values:
            raise UnsupportedError(
                f"{instruction!r}: fused attention with {name} = {found[name]} is not evaluated"
            )
    if float(found.get("dropout_probability", 0)):
        raise UnsupportedError(f"{instruction!r}: fused attention with dropout is not evaluated")
    return found


def _attention(
    instruction: HloInstruction, operands: Operands, q_ends: Value, kv_ends: Value
) -> Attention:
    settings = _settings(instruction)
    q, k = widen(array_of(operands[0])), widen(array_of(operands[1]))
    packed = int(settings.get("qkv_layout", _APART)) == _KV_PACKED
    keys, values = (k[:, :, 0], k[:, :, 1]) if packed else (k, widen(array_of(operands[2])))
    b, s, h, d = q.shape
    t, groups = keys.shape[1:3]
    visible = _visible(int(settings.get("mask_type", 0)), b, s, t, q_ends, kv_ends)
    return Attention(
        q.reshape(b, s, groups, h // groups, d).transpose(0, 2, 3, 1, 4),
        keys.transpose(0, 2, 1, 3),
        values.transpose(0, 2, 1, 3),
        visible[:, None, None],
        float(settings.get("scaling_factor", 1.0)),
    )


def _visible(mask: int, b: int, s: int, t: int, q_ends: Value, kv_ends: Value) -> NDArray:
    """Return [b,s,t]: whether the query may see the key."""
    rows, columns = np.arange(s)[:, None], np.arange(t)[None, :]
    seen = np.broadcast_to(columns <= rows if mask in _CAUSAL else np.array(True), (b, s, t))
    if mask in _PADDED:
        lengths_q, lengths_kv = (np.diff(array_of(ends))[:b] for ends in (q_ends, kv_ends))
        seen = seen & (rows < lengths_q[:, None, None]) & (columns < lengths_kv[:, None, None])
    return seen


def _heads_last(x: NDArray) -> NDArray:
    """Transpose [b,g,r,s,d] -> [b,s,h,d]."""
    b, g, r, s, d = x.shape
    return x.transpose(0, 3, 1, 2, 4).reshape(b, s, g * r, d)


def _zeros(instruction: HloInstruction, index: int) -> NDArray:
    shape = as_array(as_tuple(instruction.shape).elements[index])
    return np.zeros(shape.dims, shape.element_type.numpy)


def _forward(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate the forward call. A query that sees no key gives zeros."""
    out, lse = _attention(instruction, operands, operands[5], operands[6]).forward()
    statistics = _zeros(instruction, 1)
    statistics[...] = lse.reshape(statistics.shape)
    kind = array_of(operands[0]).dtype
    return (
        _heads_last(out).astype(kind),
        statistics,
        _zeros(instruction, 2),
        _zeros(instruction, 3),
    )


def _backward(instruction: HloInstruction, operands: Operands) -> Value:
    """Evaluate the backward call."""
    at = _attention(instruction, operands, operands[8], operands[9])
    b, g, r, s, d = at.q.shape
    statistics = widen(array_of(operands[4])).reshape(b, g, r, s)
    out, dout = (
        widen(array_of(x)).reshape(b, s, g, r, d).transpose(0, 2, 3, 1, 4) for x in operands[6:8]
    )
    heads, dk, dv, _ = at.backward(statistics, out, dout)
    dq, dk, dv = _heads_last(heads), dk.transpose(0, 2, 1, 3), dv.transpose(0, 2, 1, 3)
    kind = array_of(operands[0]).dtype
    packed = array_of(operands[1]).ndim == 5
    first = np.stack([dk, dv], axis=2) if packed else dk
    second = _zeros(instruction, 2) if packed else dv.astype(kind)
    rest = [_zeros(instruction, i) for i in (3, 4)]
    return (dq.astype(kind), first.astype(kind), second, *rest)


for _name, _evaluate in (("forward", _forward), ("backward", _backward)):
    register_custom_call(f"te_fused_attn_{_name}_ffi", evaluate=_evaluate)
