"""Programs of attention and its gradients, as JAX writes them."""

from __future__ import annotations

from dataclasses import dataclass

from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape, PrimitiveType

F32, BF16, S32, PRED = (
    PrimitiveType.F32,
    PrimitiveType.BF16,
    PrimitiveType.S32,
    PrimitiveType.PRED,
)


@dataclass(frozen=True)
class Attention:
    """Sizes and features of a program. The heads of each group of queries share keys and values.

    mask: none, causal, window (causal, of 16 positions), segments (of queries and keys), pred (a parameter).
    bias: none, matrix (per head), alibi (slopes times distances). cap: of the scores, by tanh.
    quotient: the derivative of e / l is written as that of a quotient, and not by the weights. through_maxima: the
    gradient through the largest score of each row is added, too, which is 0 but for rounding. dropout: fraction of the
    weights that a mask, a parameter, sets to 0.
    """

    batch: int = 2
    groups: int = 3
    heads: int = 1
    rows: int = 37
    columns: int = 53
    depth: int = 20
    features: int = 20
    kind: PrimitiveType = F32
    mask: str = "none"
    bias: str = "none"
    cap: float = 0.0
    quotient: bool = False
    through_maxima: bool = False
    dropout: float = 0.0
    gradients: bool = True

    @property
    def lead(self) -> tuple[int, ...]:
        """Return the sizes of the batch dimensions of the scores."""
        shared = (self.heads,) if self.heads > 1 else ()
        return (self.batch, self.groups, *shared)

    @property
    def scores(self) -> tuple[int, ...]:
        return (*self.lead, self.rows, self.columns)


class AttentionWriter:
    """Writer of the entry of ``module``; its parameters are made as they are needed."""

    def __init__(self, case: Attention, module: HloModule | None = None) -> None:
        self.case = case
        self.module = module or HloModule("attention")
        self.module.stage = Stage.PARTITIONED
        self.module.entry = self.module.new_computation("main")
        self.b = Builder(self.module.entry)
        self._parameters = 0

    def parameter(self, kind: PrimitiveType, dims: tuple[int, ...], name: str) -> HloInstruction:
        self._parameters += 1
        return self.b.parameter(self._parameters - 1, ArrayShape(kind, dims), name)

    def finish(self, results: list[HloInstruction]) -> HloModule:
        self.module.entry.root = self.b.tuple(results)
        self.module.entry.remove_unused()
        return self.module

    # ---- parts
    def along(self, x: HloInstruction, *dims: int) -> HloInstruction:
        """Return ``x`` broadcast along the scores' dimensions: its dimensions become ``dims``."""
        return self.b.broadcast(x, dims, self.case.scores)

    def rows(self, x: HloInstruction) -> HloInstruction:
        """Return values per row, broadcast along the columns."""
        return self.along(x, *range(len(self.case.scores) - 1))

    def full(self, value: float) -> HloInstruction:
        return self.b.full(ArrayShape(F32, self.case.scores), value)

    def product(
        self, x: HloInstruction, y: HloInstruction, x_with: int, y_with: int, kind: PrimitiveType
    ) -> HloInstruction:
        """Return the product of two arrays with the batch dimensions in front, contracting one dimension of each."""
        shared = tuple(range(2))
        return self.b.dot(x, y, DotAttrs((x_with,), (y_with,), shared, shared), kind)

    def positions(self) -> tuple[HloInstruction, HloInstruction]:
        """Return the positions of queries and keys, [s,t] each."""
        case, b = self.case, self.b
        matrix = (case.rows, case.columns)
        queries = b.iota(S32, (case.rows,), 0)
        keys = b.iota(S32, (case.columns,), 0)
        return b.broadcast(queries, (0,), matrix), b.broadcast(keys, (1,), matrix)

    def visible(self) -> HloInstruction | None:
        """Return the mask of the scores, or None."""
        case, b = self.case, self.b
        last = len(case.scores) - 1
        if case.mask == "none":
            return None
        if case.mask == "pred":
            mask = self.parameter(PRED, (case.rows, case.columns), "mask")
            return self.along(mask, last - 1, last)
        if case.mask == "segments":
            matrix = (case.batch, case.rows, case.columns)
            queries = self.parameter(S32, matrix[:2], "query_segments")
            keys = self.parameter(S32, (case.batch, case.columns), "key_segments")
            same = b.compare(
                b.broadcast(queries, (0, 1), matrix), b.broadcast(keys, (0, 2), matrix), "EQ"
            )
            return self.along(same, 0, last - 1, last)
        queries, keys = self.positions()
        mask = b.compare(queries, keys, "GE")
        if case.mask == "window":
            distance = b.subtract(queries, keys)
            limit = b.full(distance.array_shape, 16)
            mask = b.logical_and(mask, b.compare(distance, limit, "LT"))
        return self.along(mask, last - 1, last)

    # ---- attention
    def attention(self) -> list[HloInstruction]:
        """Return the output and, if they are asked for, the gradients of queries, keys, values and the bias."""
        case, b = self.case, self.b
        lead, last = case.lead, len(case.scores) - 1
        q = self.parameter(case.kind, (*lead, case.rows, case.depth), "q")
        k = self.parameter(case.kind, (*lead[:2], case.columns, case.depth), "k")
        v = self.parameter(case.kind, (*lead[:2], case.columns, case.features), "v")
        visible = self.visible()
        scale = self.full(case.depth**-0.5)
        s = b.multiply(self.product(q, k, last, 3, F32), scale)
        slopes = None
        if case.cap:
            bent = b.unary(Opcode.TANH, b.divide(s, self.full(case.cap)))
            s = b.multiply(bent, self.full(case.cap))
        if case.bias == "matrix":
            bias = self.parameter(F32, (case.groups, case.rows, case.columns), "bias")
            s = b.add(s, self.along(bias, 1, last - 1, last))
        if case.bias == "alibi":
            slopes = self.parameter(F32, (case.groups,), "slopes")
            queries, keys = self.positions()
            distance = b.convert(b.subtract(keys, queries), F32)
            s = b.add(s, b.multiply(self.along(slopes, 1), self.along(distance, last - 1, last)))
        if visible is not None:
            s = b.select(visible, s, self.full(-1e9))
        m = b.reduce(s, (last,), ReductionKind.MAX)
        e = b.unary(Opcode.EXPONENTIAL, b.subtract(s, self.rows(m)))
        total = b.reduce(e, (last,), ReductionKind.SUM)
        p = b.divide(e, self.rows(total))
        kept = self.parameter(PRED, case.scores, "kept") if case.dropout else None

        def drop(x: HloInstruction) -> HloInstruction:
            if kept is None:
                return x
            return b.select(kept, b.divide(x, self.full(1 - case.dropout)), self.full(0))

        weights = b.as_type(drop(p), case.kind)
        o = self.product(weights, v, last, 2, case.kind)
        if not case.gradients:
            return [o]
        do = self.parameter(case.kind, o.dims, "do")
        dp = drop(b.as_type(self.product(do, v, last, 3, case.kind), F32))
        if case.quotient:
            inverse = b.divide(b.full(total.array_shape, 1), b.multiply(total, total))
            d = b.reduce(
                b.multiply(b.multiply(dp, self.rows(inverse)), e), (last,), ReductionKind.SUM
            )
            ds = b.multiply(b.add(b.divide(dp, self.rows(total)), self.rows(b.negate(d))), e)
        else:
            d = b.reduce(b.multiply(dp, p), (last,), ReductionKind.SUM)
            ds = b.multiply(p, b.subtract(dp, self.rows(d)))
        if case.through_maxima:
            largest = b.convert(b.compare(s, self.rows(m), "EQ"), F32)
            count = b.reduce(largest, (last,), ReductionKind.SUM)
            change = b.reduce(b.negate(ds), (last,), ReductionKind.SUM)
            ds = b.add(ds, b.multiply(self.rows(b.divide(change, count)), largest))
        if visible is not None:
            ds = b.select(visible, ds, self.full(0))
        more = []
        if slopes is not None:
            queries, keys = self.positions()
            distance = self.along(b.convert(b.subtract(keys, queries), F32), last - 1, last)
            others = [d for d in range(last) if d != 1]
            more = [b.reduce(b.multiply(ds, distance), (last,), ReductionKind.SUM)]
            more = [b.reduce(more[0], others, ReductionKind.SUM)]
        if case.cap:
            ds = b.multiply(ds, b.subtract(self.full(1), b.multiply(bent, bent)))
        ds = b.as_type(b.multiply(ds, scale), case.kind)
        shared = tuple(range(2))
        over = tuple(range(2, last))  # the rows of all heads that share keys

        def of_columns(x: HloInstruction, y: HloInstruction) -> HloInstruction:
            return b.dot(x, y, DotAttrs(over, over, shared, shared), case.kind)

        dq = self.product(ds, k, last, 2, case.kind)
        return [o, dq, of_columns(ds, q), of_columns(weights, do), *more]

    def ring(self) -> list[HloInstruction]:
        """Return what one block of keys adds to the output, the sum and the largest score of blocks before."""
        case, b = self.case, self.b
        lead, last = case.lead, len(case.scores) - 1
        q = self.parameter(case.kind, (*lead, case.rows, case.depth), "q")
        k = self.parameter(case.kind, (*lead[:2], case.columns, case.depth), "k")
        v = self.parameter(case.kind, (*lead[:2], case.columns, case.features), "v")
        output = self.parameter(F32, (*lead, case.rows, case.features), "o")
        total = self.parameter(F32, (*lead, case.rows), "l")
        largest = self.parameter(F32, (*lead, case.rows), "m")
        visible = self.visible()
        s = b.multiply(self.product(q, k, last, 3, F32), self.full(case.depth**-0.5))
        if visible is not None:
            s = b.select(visible, s, self.full(-1e30))
        new = b.maximum(largest, b.reduce(s, (last,), ReductionKind.MAX))
        e = b.unary(Opcode.EXPONENTIAL, b.subtract(s, self.rows(new)))
        scale = b.unary(Opcode.EXPONENTIAL, b.subtract(largest, new))
        sums = b.add(b.multiply(total, scale), b.reduce(e, (last,), ReductionKind.SUM))
        wide = b.broadcast(scale, range(last), output.dims)
        block = self.product(b.as_type(e, case.kind), v, last, 2, F32)
        return [b.add(b.multiply(output, wide), block), sums, new]


def attention_module(case: Attention) -> HloModule:
    writer = AttentionWriter(case)
    return writer.finish(writer.attention())


def ring_module(case: Attention) -> HloModule:
    writer = AttentionWriter(case)
    return writer.finish(writer.ring())
