"""Fused attention as JAX calls it from cuDNN: ``__cudnn$fmhaSoftmax``, with and without bias, and its gradient.

    (out [b,h,s,e], (log-sum-exp f32[b,h,s],) workspace) forward(q, k, v, (bias,) (q lengths, kv lengths))
    (dq [b,h,s,d], dk [b,g,t,d], dv [b,g,t,e], (dbias,) workspace)
        backward(q, k, v, log-sum-exp, dout, (bias,) out, (q lengths, kv lengths))

Operands are [b,s,h,d] or [b,h,s,d], as the dimension numbers of the configuration say; results have heads first. The
bias is [1 or b, 1 or h, s, t]. Dropout, ALiBi, packed sequences and pages of keys are refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.custom_call import register_custom_call
from spmd.errors import UnsupportedError
from spmd.evaluator.attention import Attention, grouped
from spmd.evaluator.numerics import widen
from spmd.evaluator.value import NDArray, Operands, Value, array_of
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.library_calls.settings import Settings, settings_of
from spmd.ops.custom_call import custom_call_target
from spmd.shape import as_array, as_tuple

_PADDED, _CAUSAL = ("PADDING", "PADDING_CAUSAL"), ("CAUSAL", "PADDING_CAUSAL")
_MASKS = ("NO_MASK", *_PADDED, "CAUSAL")


@dataclass(frozen=True)
class _Call:
    """One call: its configuration, and which operands it has."""

    instruction: HloInstruction
    settings: Settings

    @staticmethod
    def of(instruction: HloInstruction) -> _Call:
        """Read the configuration. Raises UnsupportedError for settings that are not evaluated."""
        settings = settings_of(instruction).inside("cudnn_fmha_backend_config")
        if settings.text("mask_type", "NO_MASK") not in _MASKS:
            raise settings.wrong("mask_type")
        if settings.number("dropout_rate", 0):
            raise settings.wrong("dropout_rate")
        if settings.number("max_seg_per_batch", 1) > 1:
            raise settings.wrong("max_seg_per_batch")
        if settings.flag("is_paged_attention"):
            raise settings.wrong("is_paged_attention")
        call = _Call(instruction, settings)
        if instruction.num_operands != len(call.names):
            raise UnsupportedError(
                f"{instruction!r}: operands {', '.join(call.names)} are expected"
            )
        return call

    @property
    def is_backward(self) -> bool:
        return str(custom_call_target(self.instruction)).endswith("Backward")

    @property
    def mask(self) -> str:
        return self.settings.text("mask_type", "NO_MASK")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operands, in order."""
        bias = ("bias",) if "Bias" in str(custom_call_target(self.instruction)) else ()
        lengths = ("q_lengths", "kv_lengths") if self.mask in _PADDED else ()
        gradient = ("statistics", "dout", *bias, "out") if self.is_backward else bias
        return ("q", "k", "v", *gradient, *lengths)

    @property
    def heads_first(self) -> bool:
        """Return whether operands are [b,h,s,d]."""
        name = "bmm2_grad_gemm2" if self.is_backward else "bmm1"
        numbers = self.settings.inside(f"{name}_dot_dimension_numbers")
        batch = numbers.dimensions("lhs_batch_dimensions")
        if batch not in ((0, 1), (0, 2)):
            raise numbers.wrong("lhs_batch_dimensions")
        return batch == (0, 1)

    def arrays(self, operands: Operands) -> dict[str, NDArray]:
        """Return the operands by name, with heads first."""
        found = {n: widen(array_of(x)) for n, x in zip(self.names, operands, strict=True)}
        if not self.heads_first:
            for name in ("q", "k", "v", "dout", "out"):
                if name in found:
                    found[name] = found[name].swapaxes(1, 2)
        return found

    def attention(self, arrays: dict[str, NDArray]) -> Attention:
        q, k, v = (arrays[name] for name in "qkv")
        groups, bias = k.shape[1], arrays.get("bias")
        if bias is not None:
            b, h, s, t = bias.shape
            wide = groups if h > 1 else 1
            bias = bias.reshape(b, wide, h // wide, s, t)
        scale = self.settings.number("fmha_scale", 1.0)
        return Attention(grouped(q, groups), k, v, self._visible(q, k, arrays), scale, bias)

    def _visible(self, q: NDArray, k: NDArray, arrays: dict[str, NDArray]) -> NDArray:
        """Return [b or 1,1,1,s,t]: whether the query sees the key."""
        rows, columns = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None, :]
        seen = np.ones((1, q.shape[2], k.shape[2]), np.bool_)
        if self.mask in _CAUSAL:
            seen = seen & (columns <= rows)
        window = int(self.settings.number("sliding_window_length", 0))
        if window > 0:
            seen = seen & (columns > rows - window)
        if self.mask in _PADDED:
            ends = (arrays["q_lengths"], arrays["kv_lengths"])
            q_ends, kv_ends = (each.astype(np.int64)[:, None, None] for each in ends)
            seen = seen & (rows < q_ends) & (columns < kv_ends)
        return seen[:, None, None]

    def results(self, values: Sequence[NDArray]) -> Value:
        """Return ``values`` in the shapes and types of the first results, and zeros for the others."""
        shapes = [as_array(shape) for shape in as_tuple(self.instruction.shape).elements]
        found = [np.zeros(shape.dims, shape.element_type.numpy) for shape in shapes]
        for target, value in zip(found, values, strict=False):
            target[...] = value.reshape(target.shape).astype(target.dtype)
        return tuple(found)


def _forward(instruction: HloInstruction, operands: Operands) -> Value:
    call = _Call.of(instruction)
    out, statistics = call.attention(call.arrays(operands)).forward()
    has_statistics = len(as_tuple(instruction.shape).elements) > 2
    return call.results([out, statistics] if has_statistics else [out])


def _backward(instruction: HloInstruction, operands: Operands) -> Value:
    call = _Call.of(instruction)
    arrays = call.arrays(operands)
    at = call.attention(arrays)
    groups = at.k.shape[1]
    out, dout = (grouped(arrays[name], groups) for name in ("out", "dout"))
    statistics = arrays["statistics"].reshape(at.q.shape[:-1])
    dq, dk, dv, ds = at.backward(statistics, out, dout)
    if at.bias is None:
        return call.results([dq, dk, dv])
    sizes = zip(at.bias.shape, ds.shape, strict=True)
    shared = tuple(n for n, (own, size) in enumerate(sizes) if own == 1 and size > 1)
    return call.results([dq, dk, dv, ds.sum(axis=shared, keepdims=True)])


#: Factors of each array with heads first: i batch, j k heads (k to each of j), l queries, m keys, n o elements.
_FACTORS = {
    **dict.fromkeys(("q", "dq"), ("i", "jk", "l", "n")),
    **dict.fromkeys(("k", "dk"), ("i", "j", "m", "n")),
    **dict.fromkeys(("v", "dv"), ("i", "j", "m", "o")),
    **dict.fromkeys(("out", "dout"), ("i", "jk", "l", "o")),
    "statistics": ("i", "jk", "l"),
    **dict.fromkeys(("q_lengths", "kv_lengths"), ("i",)),
}


def _sharding_rule(instruction: HloInstruction) -> str:
    """Return the rule in Shardy's notation: batches and heads are independent, all other dimensions are replicated."""
    call = _Call.of(instruction)
    dims = {
        name: as_array(x.shape).dims
        for name, x in zip(call.names, instruction.operands, strict=True)
    }
    order = (0, 1, 2, 3) if call.heads_first else (0, 2, 1, 3)
    (b, h, s, d), (_, g, t, _), (*_, e) = (tuple(dims[x][d] for d in order) for x in "qkv")
    sizes = {"i": b, "j": g, "k": h // g, "l": s, "m": t, "n": d, "o": e}
    factors = dict(_FACTORS)
    if "bias" in dims:  # may have one batch or head for all
        sizes |= {"p": 1, "q": 1}
        one = [size == 1 for size in dims["bias"]]
        factors["bias"] = ("p" if one[0] else "i", "q" if one[1] else "jk", "l", "m")
    gradients = ("dq", "dk", "dv", "bias")
    results = as_tuple(instruction.shape).elements[:-1]
    outputs = [factors[x] for x in (gradients if call.is_backward else ("out", "statistics"))]
    (sizes["r"],) = as_array(as_tuple(instruction.shape).elements[-1]).dims  # the workspace
    operands = [
        tuple(factors[x][d] for d in order) if len(dims[x]) == 4 and x != "bias" else factors[x]
        for x in call.names
    ]
    parts = (operands, [*outputs[: len(results)], ("r",)])
    texts = [", ".join(f"[{', '.join(each)}]" for each in part) for part in parts]
    used = [letter for letter in sizes if any(letter in "".join(x) for part in parts for x in part)]
    stated = ", ".join(f"{letter}={sizes[letter]}" for letter in used)
    replicated = ", ".join(letter for letter in used if letter not in "ijk")
    return f"<({texts[0]})->({texts[1]}) {{{stated}}} need_replication={{{replicated}}}>"


for _name, _evaluate in (("", _forward), ("Backward", _backward)):
    for _kind in ("Softmax", "ScaleBiasSoftmax"):
        register_custom_call(
            f"__cudnn$fmha{_kind}{_name}", evaluate=_evaluate, sharding_rule=_sharding_rule
        )
