"""Fused attention as cuDNN and Transformer Engine define it; spmd/library_calls/attention reads the calls."""

from __future__ import annotations

import numpy as np

from spmd.custom_call import register_custom_call
from spmd.evaluator.attention import Attention, grouped
from spmd.evaluator.numerics import widen
from spmd.evaluator.value import NDArray, Operands, Value, array_of
from spmd.hlo.instruction import HloInstruction
from spmd.library_calls.attention import LIBRARIES  # noqa: F401 - fills the table
from spmd.library_calls.attention.call import (
    ATTENTION_CALLS,
    POSITIONS_FIRST,
    AttentionCall,
    attention_call,
)
from spmd.shape import as_array, as_tuple

_IN_LAYOUT = ("q", "k", "v", "out", "dout")


def evaluate_attention(instruction: HloInstruction, operands: Operands) -> Value:
    call = attention_call(instruction)
    arrays = _arrays(call, operands)
    values = _backward(call, arrays) if call.is_backward else _forward(call, arrays)
    shapes = [as_array(shape) for shape in as_tuple(instruction.shape).elements]
    found = [np.zeros(shape.dims, shape.element_type.numpy) for shape in shapes]
    for target, name in zip(found, call.result_names, strict=False):
        target[...] = values[name].reshape(target.shape).astype(target.dtype)
    return tuple(found)


def _arrays(call: AttentionCall, operands: Operands) -> dict[str, NDArray]:
    """Return the operands by name, with heads first."""
    found = {name: widen(array_of(x)) for name, x in call.by_name(operands).items()}
    if call.packed:
        found["k"], found["v"] = found["k"][:, :, 0], found["k"][:, :, 1]
    if call.operand_layout == POSITIONS_FIRST:
        found |= {name: x.swapaxes(1, 2) for name, x in found.items() if name in _IN_LAYOUT}
    if call.cumulative and call.mask.padded:
        count = len(found["q"])
        found |= {x: np.diff(found[x])[:count] for x in ("q_lengths", "kv_lengths")}
    return found


def _attention(call: AttentionCall, arrays: dict[str, NDArray]) -> Attention:
    q, k, v = (arrays[name] for name in "qkv")
    groups, bias = k.shape[1], arrays.get("bias")
    if bias is not None:
        b, h, s, t = bias.shape
        wide = groups if h > 1 else 1
        bias = bias.reshape(b, wide, h // wide, s, t)
    return Attention(grouped(q, groups), k, v, _visible(call, arrays), call.scale, bias)


def _visible(call: AttentionCall, arrays: dict[str, NDArray]) -> NDArray:
    """Return [b or 1,1,1,s,t]: whether the query sees the key."""
    queries, keys = arrays["q"].shape[2], arrays["k"].shape[2]
    rows, columns = np.arange(queries)[:, None], np.arange(keys)[None, :]
    seen = np.ones((1, queries, keys), np.bool_)
    if call.mask.causal:
        seen = seen & (columns <= rows)
    if call.mask.window:
        seen = seen & (columns > rows - call.mask.window)
    if call.mask.padded:
        ends = (arrays["q_lengths"], arrays["kv_lengths"])
        q_ends, kv_ends = (each.astype(np.int64)[:, None, None] for each in ends)
        seen = seen & (rows < q_ends) & (columns < kv_ends)
    return seen[:, None, None]


def _forward(call: AttentionCall, arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    out, statistics = _attention(call, arrays).forward()
    return {"out": _in_result_layout(call, out), "statistics": statistics}


def _backward(call: AttentionCall, arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    at = _attention(call, arrays)
    groups = at.k.shape[1]
    out, dout = (grouped(arrays[name], groups) for name in ("out", "dout"))
    dq, dk, dv, ds = at.backward(arrays["statistics"].reshape(at.q.shape[:-1]), out, dout)
    dq, dk, dv = (_in_result_layout(call, x) for x in (dq, dk, dv))
    values = {"dq": dq, "dk": dk, "dv": dv}
    if "dkv" in call.result_names:
        values["dkv"] = np.stack([dk, dv], axis=2)
    if at.bias is not None:
        sizes = zip(at.bias.shape, ds.shape, strict=True)
        shared = tuple(n for n, (own, size) in enumerate(sizes) if own == 1 and size > 1)
        values["dbias"] = ds.sum(axis=shared, keepdims=True)
    return values


def _in_result_layout(call: AttentionCall, x: NDArray) -> NDArray:
    """Merge the groups of heads of [b,g,r,s,d], and order the dimensions as results have them."""
    if x.ndim == 5:
        x = x.reshape(x.shape[0], -1, *x.shape[3:])
    return x.swapaxes(1, 2) if call.result_layout == POSITIONS_FIRST else x


for _target in ATTENTION_CALLS:
    register_custom_call(_target, evaluate=evaluate_attention)
