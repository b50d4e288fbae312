"""Computations of attention fusions, written as the attention-fusion pass leaves them, and inputs for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spmd.evaluator.evaluator import evaluate
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

_REDUCERS = """
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


@dataclass(frozen=True)
class Attention:
    """Attention of queries [g,r,s,d] to keys [g,t,d] and values [g,t,e] of type ``kind``; r queries share a key.

    mask: "" for none; "causal": keys after the query are hidden; "late": keys less than 40 before the query are hidden;
    "window": keys after the query, and more than 9 before it; "bias": an array is added; "padding": some keys of a batch
    are hidden, in the first batch all. hidden: score of hidden keys. selects: the gradient of scores is 0 at hidden keys.
    """

    g: int = 2
    r: int = 1
    s: int = 37
    t: int = 53
    d: int = 20
    e: int = 24
    kind: str = "f32"
    mask: str = ""
    hidden: str = "-inf"
    selects: bool = True
    precision: str = ", operand_precision={highest,highest}"

    @property
    def dims(self) -> str:
        return f"{self.g},{self.r},{self.s},{self.t}"

    @property
    def rows(self) -> str:
        return f"f32[{self.g},{self.r},{self.s}]"

    @property
    def _has_select(self) -> bool:
        return self.selects and self.mask not in ("", "bias")

    # ---- texts
    def _parameters(self, *more: str) -> list[str]:
        g, r, s, t, d, e, kind = self.g, self.r, self.s, self.t, self.d, self.e, self.kind
        shapes = [f"q = {kind}[{g},{r},{s},{d}]", f"k = {kind}[{g},{t},{d}]"]
        shapes += [f"v = {kind}[{g},{t},{e}]"]
        if self.mask == "bias":
            shapes.append(f"bias = f32[{g},{s},{t}]")
        if self.mask == "padding":
            shapes.append(f"visible = pred[{g},{t}]")
        return [f"{one} parameter({n})" for n, one in enumerate([*shapes, *more])]

    def _scores(self) -> list[str]:
        """Lines of the scaled and masked scores x."""
        dims = self.dims
        lines = [
            f"qk = f32[{dims}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}{self.precision}",
            "scale = f32[] constant(0.25)",
            f"scales = f32[{dims}] broadcast(scale), dimensions={{}}",
            f"scaled = f32[{dims}] multiply(qk, scales)",
        ]
        if self.mask == "bias":
            return [
                *lines,
                f"biases = f32[{dims}] broadcast(bias), dimensions={{0,2,3}}",
                f"x = f32[{dims}] add(scaled, biases)",
            ]
        if not self.mask:
            return [*lines[:-1], f"x = f32[{dims}] multiply(qk, scales)"]
        if self.mask == "padding":
            lines.append(f"mask = pred[{dims}] broadcast(visible), dimensions={{0,3}}")
        else:
            square = f"{self.s},{self.t}"
            lines += [
                f"row = s32[{square}] iota(), iota_dimension=0",
                f"column = s32[{square}] iota(), iota_dimension=1",
                f"after = pred[{square}] compare(row, column), direction=GE",
            ]
            if self.mask == "late":
                lines[-1:] = [
                    "forty = s32[] constant(40)",
                    f"forties = s32[{square}] broadcast(forty), dimensions={{}}",
                    f"from = s32[{square}] subtract(row, forties)",
                    f"before = pred[{square}] compare(from, column), direction=LT",
                    f"after = pred[{square}] not(before)",
                ]
            if self.mask == "window":
                lines += [
                    "nine = s32[] constant(9)",
                    f"nines = s32[{square}] broadcast(nine), dimensions={{}}",
                    f"last = s32[{square}] add(column, nines)",
                    f"near = pred[{square}] compare(row, last), direction=LE",
                    f"seen = pred[{square}] and(after, near)",
                ]
            name = "seen" if self.mask == "window" else "after"
            lines.append(f"mask = pred[{dims}] broadcast({name}), dimensions={{2,3}}")
        return [
            *lines,
            f"least = f32[] constant({self.hidden})",
            f"leasts = f32[{dims}] broadcast(least), dimensions={{}}",
            f"x = f32[{dims}] select(mask, scaled, leasts)",
        ]

    def forward(self, results: str = "o, m, l") -> str:
        dims, rows = self.dims, self.rows
        shapes = {"o": f"{self.kind}[{self.g},{self.r},{self.s},{self.e}]", "m": rows, "l": rows}
        made = ", ".join(shapes[name] for name in results.split(", "))
        return self._module(
            *self._parameters(),
            *self._scores(),
            "least_m = f32[] constant(-inf)",
            f"m = {rows} reduce(x, least_m), dimensions={{3}}, to_apply=larger",
            f"ms = f32[{dims}] broadcast(m), dimensions={{0,1,2}}",
            f"less = f32[{dims}] subtract(x, ms)",
            f"e = f32[{dims}] exponential(less)",
            "zero = f32[] constant(0)",
            f"l = {rows} reduce(e, zero), dimensions={{3}}, to_apply=sum",
            f"ls = f32[{dims}] broadcast(l), dimensions={{0,1,2}}",
            f"p = f32[{dims}] divide(e, ls)",
            f"p_in = {self.kind}[{dims}] convert(p)",
            f"o = {shapes['o']} dot(p_in, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}{self.precision}",
            f"ROOT out = ({made}) tuple({results})",
        )

    def _gradients_of_scores(self) -> list[str]:
        dims = self.dims
        return [
            *self._scores(),
            f"ms = f32[{dims}] broadcast(m), dimensions={{0,1,2}}",
            f"less = f32[{dims}] subtract(x, ms)",
            f"e = f32[{dims}] exponential(less)",
            f"ls = f32[{dims}] broadcast(l), dimensions={{0,1,2}}",
            f"p = f32[{dims}] divide(e, ls)",
            f"dp = f32[{dims}] dot(do, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}{self.precision}",
            f"sums = f32[{dims}] broadcast(do_o), dimensions={{0,1,2}}",
            f"from_sum = f32[{dims}] subtract(dp, sums)",
            f"dx = f32[{dims}] multiply(p, from_sum)",
            *(
                [
                    "nothing = f32[] constant(0)",
                    f"nothings = f32[{dims}] broadcast(nothing), dimensions={{}}",
                    f"dx_seen = f32[{dims}] select(mask, dx, nothings)",
                ]
                if self._has_select
                else []
            ),
            f"ds = f32[{dims}] multiply({'dx_seen' if self._has_select else 'dx'}, scales)",
            f"ds_in = {self.kind}[{dims}] convert(ds)",
        ]

    def _gradient_parameters(self) -> list[str]:
        do = f"do = {self.kind}[{self.g},{self.r},{self.s},{self.e}]"
        return self._parameters(do, *(f"{name} = {self.rows}" for name in ("m", "l", "do_o")))

    def of_rows(self) -> str:
        return self._module(
            *self._gradient_parameters(),
            *self._gradients_of_scores(),
            f"ROOT dq = {self.kind}[{self.g},{self.r},{self.s},{self.d}] dot(ds_in, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}{self.precision}",
        )

    def of_columns(self) -> str:
        g, t, d, e, kind, dims = self.g, self.t, self.d, self.e, self.kind, self.dims
        numbers = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1,2}, rhs_contracting_dims={1,2}"
        return self._module(
            *self._gradient_parameters(),
            *self._gradients_of_scores(),
            f"p_in = {kind}[{dims}] convert(p)",
            f"dk = {kind}[{g},{t},{d}] dot(ds_in, q), {numbers}{self.precision}",
            f"dv = {kind}[{g},{t},{e}] dot(p_in, do), {numbers}{self.precision}",
            f"ROOT out = ({kind}[{g},{t},{d}], {kind}[{g},{t},{e}]) tuple(dk, dv)",
        )

    def _module(self, *lines: str) -> str:
        body = "\n".join(f"  {line}" for line in lines)
        return f"HloModule attention\n{_REDUCERS}\nENTRY attention {{\n{body}\n}}\n"

    # ---- inputs
    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Inputs of the forward fusion."""
        random = np.random.default_rng(seed)
        dtype = PrimitiveType(self.kind).numpy
        shapes = [
            (self.g, self.r, self.s, self.d),
            (self.g, self.t, self.d),
            (self.g, self.t, self.e),
        ]
        arrays = [
            random.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes
        ]
        if self.mask == "bias":
            arrays.append(random.standard_normal((self.g, self.s, self.t)).astype(np.float32))
        if self.mask == "padding":
            visible = random.random((self.g, self.t)) < 0.7
            visible[0] = False
            arrays.append(visible)
        return arrays

    def gradient_inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Inputs of the fusions of gradients. A row without a visible key has the statistics of another one."""
        arrays = self.inputs(seed)
        o, m, sums = evaluate(parse_module(self.forward()), *arrays)
        do = np.random.default_rng(seed + 1).standard_normal(o.shape).astype(np.float32)
        do_o = np.nan_to_num((do * o.astype(np.float32)).sum(-1))
        m, sums = np.where(np.isfinite(m), m, 0), np.where(np.isfinite(m), sums, 1)
        rows = [one.astype(np.float32) for one in (m, sums, do_o)]
        return [*arrays, do.astype(o.dtype), *rows]
