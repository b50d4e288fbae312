"""Calls of fused attention as text, forward and backward, with random operands in any type, layout and mask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from spmd.evaluator import evaluate
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

Array = np.ndarray[Any, np.dtype[Any]]

F32, F16, BF16 = (np.dtype(kind) for kind in (np.float32, np.float16, ml_dtypes.bfloat16))
NVTE_MASKS = ("NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL")


@dataclass(frozen=True)
class Problem:
    """b batches, h heads of s queries, g heads of t keys, of d elements; values of e. bias: its batches and heads."""

    kind: np.dtype[Any] = F32
    mask: str = "NO_MASK"
    b: int = 2
    h: int = 2
    g: int = 2
    s: int = 5
    t: int = 7
    d: int = 4
    e: int = 4
    window: int = 0
    bias: tuple[int, int] | None = None
    heads_first: bool = False

    @property
    def is_padded(self) -> bool:
        return "PADDING" in self.mask


@dataclass(frozen=True)
class Call:
    """A program whose result is that of a call, and its arguments."""

    text: str
    arguments: tuple[Array, ...]

    def evaluated(self) -> list[Array]:
        return list(evaluate(parse_module(self.text), *self.arguments))


def shape(array: Array) -> str:
    return f"{PrimitiveType.from_numpy(array.dtype)}[{','.join(map(str, array.shape))}]"


def program(target: str, config: str, operands: Sequence[Array], results: Sequence[str]) -> Call:
    lines = [f"  p{i} = {shape(x)} parameter({i})" for i, x in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    call = f'custom-call({names}), custom_call_target="{target}", backend_config={config}'
    body = "\n".join([*lines, f"  ROOT r = ({', '.join(results)}) {call}"])
    return Call(f"HloModule attention\nENTRY main {{\n{body}\n}}\n", tuple(operands))


def _random(rng: np.random.Generator, kind: np.dtype[Any], *dims: int) -> Array:
    return np.asarray(rng.normal(size=dims)).astype(kind)


def _dims(problem: Problem, *dims: int) -> tuple[int, ...]:
    """Return [b,h,s,d] in the layout of the operands."""
    b, h, s, d = dims
    return (b, h, s, d) if problem.heads_first else (b, s, h, d)


# ---- cuDNN
def cudnn_pair(problem: Problem, seed: int = 3) -> tuple[Call, Call]:
    """Return the forward call, and the backward call on its results."""
    p, rng = problem, np.random.default_rng(seed)
    q, k, v, dout = (
        _random(rng, p.kind, *_dims(p, p.b, *dims))
        for dims in ((p.h, p.s, p.d), (p.g, p.t, p.d), (p.g, p.t, p.e), (p.h, p.s, p.e))
    )
    bias = [] if p.bias is None else [_random(rng, p.kind, *p.bias, p.s, p.t)]
    lengths = [rng.integers(0, n + 1, p.b).astype(np.int32) for n in (p.s, p.t) if p.is_padded]
    kind = PrimitiveType.from_numpy(p.kind)
    heads = [f"{kind}[{p.b},{p.h},{p.s},{p.e}]", f"f32[{p.b},{p.h},{p.s}]", "u8[16]"]
    name = "__cudnn$fmhaSoftmax" if p.bias is None else "__cudnn$fmhaScaleBiasSoftmax"
    config = _cudnn_config(p)
    forward = program(name, config, [q, k, v, *bias, *lengths], heads)
    out, statistics, _ = forward.evaluated()
    if not p.heads_first:
        out = np.ascontiguousarray(out.swapaxes(1, 2))
    results = [
        *(f"{kind}[{p.b},{x}]" for x in (f"{p.h},{p.s},{p.d}", f"{p.g},{p.t},{p.d}")),
        *(f"{kind}[{p.b},{p.g},{p.t},{p.e}]", *map(shape, bias), "u8[0]"),
    ]
    operands = [q, k, v, statistics, dout, *bias, out, *lengths]
    return forward, program(f"{name}Backward", config, operands, results)


def _cudnn_config(p: Problem) -> str:
    numbers = {"lhs_batch_dimensions": ["0", "1"] if p.heads_first else ["0", "2"]}
    config = {
        "fmha_scale": 0.5,
        "mask_type": p.mask,
        "sliding_window_length": p.window,
        "bmm1_dot_dimension_numbers": numbers,
        "bmm2_grad_gemm2_dot_dimension_numbers": numbers,
    }
    return json.dumps({"cudnn_fmha_backend_config": config})


# ---- Transformer Engine
def transformer_engine_pair(
    problem: Problem, *, packed: bool = False, seed: int = 3
) -> tuple[Call, Call]:
    """Return the forward call, and the backward call on its results. packed: keys and values are one operand."""
    p, rng = problem, np.random.default_rng(seed)
    q, k, v, dout = (
        _random(rng, p.kind, p.b, *dims)
        for dims in ((p.s, p.h, p.d), (p.t, p.g, p.d), (p.t, p.g, p.d), (p.s, p.h, p.d))
    )
    none, seed_array = np.zeros(0, p.kind), np.zeros(2, np.uint32)
    keys = [np.stack([k, v], 2), none] if packed else [k, v]
    lengths = (rng.integers(0, n + 1, p.b) for n in (p.s, p.t))
    ends = [np.concatenate([[0], np.cumsum(n)]).astype(np.int32) for n in lengths]
    config = (
        f"{{bias_type = 0 : i64, dropout_probability = 0.000000e+00 : f64, scaling_factor = 5.000000e-01 : f64, "
        f"mask_type = {NVTE_MASKS.index(p.mask)} : i64, qkv_layout = {7 if packed else 9} : i64}}"
    )
    forward = program(
        "te_fused_attn_forward_ffi",
        config,
        [q, *keys, none, seed_array, *ends],
        [shape(q), f"f32[{p.b},{p.h},{p.s},1]", "u32[2,4]", "u8[16]"],
    )
    out, statistics, state, _ = forward.evaluated()
    backward = program(
        "te_fused_attn_backward_ffi",
        config,
        [q, *keys, none, statistics, state, out, dout, *ends],
        [shape(q), *map(shape, keys), shape(none), "u8[0]"],
    )
    return forward, backward
