"""Fused attention as products, exponentials and sums, and its gradients.

    x = scale q k^T + bias, -inf where the query does not see the key
    m = max x,  e = exp(x - m),  l = sum e,  out = (e / l) v,  statistics = m + log l
    p = exp(x - statistics),  ds = p (dout v^T - sum(dout out))
    dq = scale ds k,  dk = scale ds^T q,  dv = p^T dout,  dbias = ds, summed over what shares the bias

Scores are [b,g,r,s,t], or [b,g,s,t] if r is 1: r heads of queries read a head of keys and values, which is not copied.
Products are summed in f32, or in f64 for operands of that type; factors of products have the operands' type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.library_calls.arithmetic import computing_type, number_like, scaled
from spmd.library_calls.attention.call import POSITIONS_FIRST, AttentionCall, attention_call
from spmd.library_calls.attention.masks import visible
from spmd.library_calls.attention.named_dimensions import NamedArray, product
from spmd.library_calls.registry import Values, require_results
from spmd.ops.checks import result_elements
from spmd.shape import ArrayShape, PrimitiveType, as_array


def expanded_attention(
    call: HloInstruction, operands: Sequence[HloInstruction], b: Builder
) -> Values:
    """Return all results of a call of fused attention. Raises UnsupportedError if it uses unknown features."""
    about = attention_call(call)
    attention = _attention(about, about.by_name(operands), b)
    values = attention.backward() if about.is_backward else attention.forward()
    shapes = [as_array(shape).without_layout() for shape in result_elements(call.shape)]
    named = [attention.result(values[n], shapes[i]) for i, n in enumerate(about.result_names)]
    zeros = [b.full(shape, 0) for shape in shapes[len(named) :]]
    return require_results(call, (*named, *zeros))


@dataclass(frozen=True)
class _Attention:
    """Arrays of a call.

    arrays: q, k, v, and for the gradients out, dout and statistics.
    bias: the bias without the dimensions that share it.
    lengths: of the visible positions in the dimensions s and t, if the mask is padded.
    """

    call: AttentionCall
    arrays: dict[str, NamedArray]
    bias: NamedArray | None
    lengths: dict[str, HloInstruction]
    b: Builder

    @property
    def rows(self) -> str:
        """The dimensions that identify a query."""
        return "bgrs" if "r" in self.arrays["q"].names else "bgs"

    @property
    def operand_type(self) -> PrimitiveType:
        return self.arrays["q"].array.array_shape.element_type

    @property
    def kind(self) -> PrimitiveType:
        """The type of scores and sums."""
        return computing_type(self.operand_type)

    def product(self, x: NamedArray, y: NamedArray, names: str) -> NamedArray:
        return product(x, y, names, self.kind, self.b)

    def factor(self, x: HloInstruction) -> NamedArray:
        """Return an array like the scores in the operands' type."""
        return NamedArray(self.b.as_type(x, self.operand_type), f"{self.rows}t")

    def scores(self) -> NamedArray:
        """Return the scores with the bias, without the mask."""
        found = self.product(self.arrays["q"], self.arrays["k"], f"{self.rows}t")
        x = scaled(found.array, self.call.scale, self.b)
        if self.bias is not None:
            x = self.b.add(x, self.bias.as_type(self.kind, self.b).broadcast(found, self.b))
        return NamedArray(x, found.names)

    def masked(self, x: HloInstruction, scores: NamedArray, hidden: float) -> HloInstruction:
        """Return ``x``, and ``hidden`` where the query does not see the key."""
        seen = visible(self.call.mask, scores, self.lengths, self.b)
        return x if seen is None else self.b.select(seen, x, number_like(x, hidden, self.b))

    def forward(self) -> dict[str, NamedArray]:
        """Return out and statistics. For a query that sees no key they are 0 and -inf: its largest score starts from a
        finite number, so its exponentials are 0, and they are divided by 1 instead of their sum.
        """
        b, scores = self.b, self.scores()
        x = self.masked(scores.array, scores, -np.inf)
        hides_all = self.call.mask.may_hide_all(scores.size("s"), scores.size("t"))
        least = float(np.finfo(self.kind.numpy).min) if hides_all else -np.inf
        largest = self._reduced(scores, x, ReductionKind.MAX, least)
        weights = b.unary(Opcode.EXPONENTIAL, b.subtract(x, largest.broadcast(scores, b)))
        total = self._reduced(scores, weights, ReductionKind.SUM, 0)
        logarithm = b.unary(Opcode.LOG, total.array)
        statistics = NamedArray(b.add(largest.array, logarithm), total.names)
        if hides_all:  # any other sum is at least 1, the exponential of the largest score
            total = NamedArray(b.maximum(total.array, number_like(total.array, 1, b)), total.names)
        probabilities = self.factor(b.divide(weights, total.broadcast(scores, b)))
        out = self.product(probabilities, self.arrays["v"], f"{self.rows}e")
        return {"out": out, "statistics": statistics}

    def backward(self) -> dict[str, NamedArray]:
        """Return dq, dk, dv, and dkv and dbias if they are results."""
        b, scores = self.b, self.scores()
        q, k, v, dout = (self.arrays[name] for name in ("q", "k", "v", "dout"))
        statistics = self.arrays["statistics"].as_type(self.kind, b).broadcast(scores, b)
        weights = b.unary(Opcode.EXPONENTIAL, b.subtract(scores.array, statistics))
        weights = self.masked(weights, scores, 0)
        inner = self.product(dout, v, scores.names).array
        ds = b.multiply(weights, b.subtract(inner, self._dout_by_out().broadcast(scores, b)))
        factor = self.factor(scaled(ds, self.call.scale, b))
        values = {
            "dq": self.product(factor, k, f"{self.rows}d"),
            "dk": self.product(factor, q, "bgtd"),
            "dv": self.product(self.factor(weights), dout, "bgte"),
        }
        if "dkv" in self.call.result_names:
            values["dkv"] = self._packed(values["dk"], values["dv"])
        if "dbias" in self.call.result_names:
            values["dbias"] = self._sum_over_sharers(NamedArray(ds, scores.names))
        return values

    def result(self, value: NamedArray, shape: ArrayShape) -> HloInstruction:
        """Return ``value`` in the type, order and shape of a result."""
        b = self.b
        value = value.as_type(shape.element_type, b)
        if self.call.result_layout == POSITIONS_FIRST and value.names[-1] in "de":
            value = value.transposed(_positions_first(value.names), b)
        return b.reshape_to(value.array, shape.dims)

    def _reduced(
        self, scores: NamedArray, x: HloInstruction, kind: ReductionKind, start: float
    ) -> NamedArray:
        """Return ``x``, which is like ``scores``, reduced over the keys."""
        initial = self.b.scalar_like(x, start)
        return NamedArray(self.b.reduce(x, scores.dimensions("t"), kind, initial), self.rows)

    def _dout_by_out(self) -> NamedArray:
        """Return the sums of the products of a query's output and the output's gradient, [b,g,r,s]."""
        b = self.b
        out, dout = (self.arrays[name].as_type(self.kind, b) for name in ("out", "dout"))
        products = NamedArray(b.multiply(out.array, dout.array), out.names)
        total = b.reduce(products.array, products.dimensions("e"), ReductionKind.SUM)
        return NamedArray(total, products.names.replace("e", "")).transposed(self.rows, b)

    def _packed(self, dk: NamedArray, dv: NamedArray) -> NamedArray:
        """Return both gradients in one array, [b,t,2,g,d]."""
        b, names = self.b, "bt2gd"
        parts = []
        for one in (dk, dv):
            array = one.transposed(_positions_first(one.names), b).array
            parts.append(b.reshape(array, (*array.dims[:2], 1, *array.dims[2:])))
        return NamedArray(b.concatenate(parts, names.index("2")), names)

    def _sum_over_sharers(self, ds: NamedArray) -> NamedArray:
        """Return the gradient of the bias, without the dimensions that share it."""
        assert self.bias is not None
        shared = "".join(name for name in ds.names if name not in self.bias.names)
        if not shared:
            return ds
        total = self.b.reduce(ds.array, ds.dimensions(shared), ReductionKind.SUM)
        return NamedArray(total, self.bias.names)


def _positions_first(names: str) -> str:
    """Return the order of dimensions with positions before heads."""
    return "".join(sorted(names, key="bst2grde".index))


def _attention(call: AttentionCall, operands: dict[str, HloInstruction], b: Builder) -> _Attention:
    """Return the arrays of a call with the heads of queries in groups."""
    layout = call.operand_layout
    operands = dict(operands)
    if call.packed:
        operands["k"], operands["v"] = (_part(operands["k"], i, b) for i in (0, 1))
    groups = operands["k"].dims[layout.index("h")]
    keys = layout.replace("h", "g").replace("s", "t")
    split = _splitter(layout, operands["q"].dims[layout.index("h")] // groups, b)
    arrays = {
        "q": split(operands["q"], "d"),
        "k": NamedArray(operands["k"], keys),
        "v": NamedArray(operands["v"], keys.replace("d", "e")),
    }
    if call.is_backward:
        arrays |= {name: split(operands[name], "e") for name in ("out", "dout")}
        q = arrays["q"]
        rows = "".join(name for name in "bgrs" if name in q.names)
        dims = [q.size(name) for name in rows]
        arrays["statistics"] = NamedArray(b.reshape_to(operands["statistics"], dims), rows)
    lengths = {}
    if call.mask.padded:
        count = arrays["q"].size("b")
        for name, position in (("q_lengths", "s"), ("kv_lengths", "t")):
            lengths[position] = _lengths(operands[name], count, call.cumulative, b)
    bias = operands.get("bias")
    return _Attention(call, arrays, None if bias is None else _bias(bias, groups, b), lengths, b)


def _part(packed: HloInstruction, index: int, b: Builder) -> HloInstruction:
    """Return the keys (0) or values (1) of [b,t,2,g,d]: [b,t,g,d]."""
    part = b.slice_along(packed, 2, index, index + 1)
    return b.reshape(part, (*part.dims[:2], *part.dims[3:]))


def _splitter(layout: str, repeats: int, b: Builder) -> Callable[[HloInstruction, str], NamedArray]:
    """Return a function that splits the heads of queries, each of ``repeats`` reading the same keys, into groups."""

    def split(x: HloInstruction, last: str) -> NamedArray:
        if repeats == 1:
            return NamedArray(x, layout.replace("h", "g").replace("d", last))
        at = layout.index("h")
        dims = (*x.dims[:at], x.dims[at] // repeats, repeats, *x.dims[at + 1 :])
        names = layout.replace("h", "gr").replace("d", last)
        return NamedArray(b.reshape(x, dims), names).transposed(f"bgrs{last}", b)

    return split


def _lengths(x: HloInstruction, count: int, cumulative: bool, b: Builder) -> HloInstruction:
    """Return the lengths of ``count`` sequences."""
    if not cumulative:
        return x
    ends, begins = (b.slice(x, (first,), (first + count,)) for first in (1, 0))
    return b.subtract(ends, begins)


def _bias(x: HloInstruction, groups: int, b: Builder) -> NamedArray:
    """Return a bias [b,h,s,t] with its heads in groups, without dimensions of one element."""
    count, heads, queries, keys = x.dims
    wide = groups if heads > 1 else 1
    sizes = dict(zip("bgrst", (count, wide, heads // wide, queries, keys), strict=True))
    names = "".join(name for name, size in sizes.items() if size != 1)
    return NamedArray(b.reshape_to(x, [sizes[name] for name in names]), names)
