"""Fused attention as JAX calls it from cuDNN: ``__cudnn$fmhaSoftmax``, with and without bias, and its gradient.

    (out, (statistics,) workspace) forward(q, k, v, (bias,) (q lengths, kv lengths))
    (dq, dk, dv, (dbias,) workspace)
        backward(q, k, v, statistics, dout, (bias,) out, (q lengths, kv lengths))

Operands are [b,s,h,d] or [b,h,s,d], as the dimension numbers of the configuration say; results have heads first.
Dropout, ALiBi, packed sequences and pages of keys are refused by name.
"""

from __future__ import annotations

from spmd.custom_call import register_custom_call
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.library_calls.attention.call import (
    ATTENTION_CALLS,
    HEADS_FIRST,
    POSITIONS_FIRST,
    AttentionCall,
    AttentionMask,
)
from spmd.library_calls.settings import Settings, settings_of
from spmd.ops.checks import result_elements
from spmd.ops.custom_call import custom_call_target
from spmd.shape import as_array, as_tuple

_MASKS = {
    "NO_MASK": AttentionMask(),
    "CAUSAL": AttentionMask(causal=True),
    "PADDING": AttentionMask(padded=True),
    "PADDING_CAUSAL": AttentionMask(causal=True, padded=True),
}


def read_call(instruction: HloInstruction) -> AttentionCall:
    """Read a call of cuDNN. Raises UnsupportedError for settings that are not known."""
    settings = settings_of(instruction).inside("cudnn_fmha_backend_config")
    mask = _MASKS.get(settings.text("mask_type", "NO_MASK"))
    if mask is None:
        raise settings.wrong("mask_type")
    if settings.number("dropout_rate", 0):
        raise settings.wrong("dropout_rate")
    if settings.number("max_seg_per_batch", 1) > 1:
        raise settings.wrong("max_seg_per_batch")
    if settings.flag("is_paged_attention"):
        raise settings.wrong("is_paged_attention")
    window = max(int(settings.number("sliding_window_length", 0)), 0)
    target = custom_call_target(instruction)
    is_backward, has_bias = target.endswith("Backward"), "Bias" in target
    operands = _operand_names(is_backward, has_bias, mask)
    if instruction.num_operands != len(operands):
        raise UnsupportedError(f"{instruction!r}: operands {', '.join(operands)} are expected")
    results = ("dq", "dk", "dv", *["dbias"] * has_bias) if is_backward else ("out", "statistics")
    return AttentionCall(
        instruction,
        operands,
        results[: len(result_elements(instruction.shape)) - 1],
        _layout(settings, is_backward),
        HEADS_FIRST,
        AttentionMask(mask.causal, window, mask.padded),
        settings.number("fmha_scale", 1.0),
    )


def _operand_names(is_backward: bool, has_bias: bool, mask: AttentionMask) -> tuple[str, ...]:
    bias = ("bias",) if has_bias else ()
    lengths = ("q_lengths", "kv_lengths") if mask.padded else ()
    rest = ("statistics", "dout", *bias, "out") if is_backward else bias
    return ("q", "k", "v", *rest, *lengths)


def _layout(settings: Settings, is_backward: bool) -> str:
    """Return the layout of the operands: the product that reads all of them has heads as its second batch dimension."""
    name = "bmm2_grad_gemm2" if is_backward else "bmm1"
    numbers = settings.inside(f"{name}_dot_dimension_numbers")
    batch = numbers.dimensions("lhs_batch_dimensions")
    if batch not in ((0, 1), (0, 2)):
        raise numbers.wrong("lhs_batch_dimensions")
    return HEADS_FIRST if batch == (0, 1) else POSITIONS_FIRST


#: Factors of each array with heads first: i batch, j k heads (k to each of j), l queries, m keys, n o elements.
_FACTORS = {
    **dict.fromkeys(("q", "dq"), ("i", "jk", "l", "n")),
    **dict.fromkeys(("k", "dk"), ("i", "j", "m", "n")),
    **dict.fromkeys(("v", "dv"), ("i", "j", "m", "o")),
    **dict.fromkeys(("out", "dout"), ("i", "jk", "l", "o")),
    "statistics": ("i", "jk", "l"),
    **dict.fromkeys(("q_lengths", "kv_lengths"), ("i",)),
}


def sharding_rule(instruction: HloInstruction) -> str:
    """Return the rule in Shardy's notation: batches and heads are independent, all other dimensions are replicated."""
    call = read_call(instruction)
    dims = {name: x.dims for name, x in call.by_name(instruction.operands).items()}
    order = tuple(map(call.operand_layout.index, HEADS_FIRST))
    (b, h, s, d), (_, g, t, _), (*_, e) = (tuple(dims[x][d] for d in order) for x in "qkv")
    sizes = {"i": b, "j": g, "k": h // g, "l": s, "m": t, "n": d, "o": e}
    factors = dict(_FACTORS)
    if "bias" in dims:  # may have one batch or head for all
        sizes |= {"p": 1, "q": 1}
        one = [size == 1 for size in dims["bias"]]
        factors["bias"] = ("p" if one[0] else "i", "q" if one[1] else "jk", "l", "m")
        factors["dbias"] = factors["bias"]
    (sizes["r"],) = as_array(as_tuple(instruction.shape).elements[-1]).dims  # the workspace
    operands = [
        tuple(factors[x][d] for d in order) if len(dims[x]) == 4 and x != "bias" else factors[x]
        for x in call.operand_names
    ]
    parts = (operands, [*(factors[x] for x in call.result_names), ("r",)])
    texts = [", ".join(f"[{', '.join(each)}]" for each in part) for part in parts]
    used = [letter for letter in sizes if any(letter in "".join(x) for part in parts for x in part)]
    stated = ", ".join(f"{letter}={sizes[letter]}" for letter in used)
    replicated = ", ".join(letter for letter in used if letter not in "ijk")
    return f"<({texts[0]})->({texts[1]}) {{{stated}}} need_replication={{{replicated}}}>"


for _kind in ("Softmax", "ScaleBiasSoftmax"):
    for _direction in ("", "Backward"):
        ATTENTION_CALLS.add(f"__cudnn$fmha{_kind}{_direction}", read_call)
        register_custom_call(f"__cudnn$fmha{_kind}{_direction}", sharding_rule=sharding_rule)
