"""Attention with grouped heads, its softmax statistics and its gradients, as libraries of fused attention define them.

Arrays are f32 or wider, with heads before positions: q [b,g,r,s,d], k [b,g,t,d], v [b,g,t,e]; h = g r heads of q read
g heads of k and v.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from spmd.evaluator.value import NDArray
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Attention:
    """Operands of one call.

    visible: whether a query sees a key, and bias: what is added to the scaled scores; both broadcast to [b,g,r,s,t].
    """

    q: NDArray
    k: NDArray
    v: NDArray
    visible: NDArray
    scale: float
    bias: NDArray | None = None

    @cached_property
    def scores(self) -> NDArray:
        scores = np.einsum("bgrsd,bgtd->bgrst", self.q, self.k) * self.q.dtype.type(self.scale)
        if self.bias is not None:
            scores = scores + self.bias
        return np.where(self.visible, scores, -np.inf)

    def forward(self) -> tuple[NDArray, NDArray]:
        """Return (out [b,g,r,s,e], log of the sum of exponentials [b,g,r,s]). A query that sees no key gives zeros."""
        largest = self.scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(self.scores - np.where(np.isinf(largest), 0, largest))
        total = weights.sum(axis=-1, keepdims=True)
        out = np.einsum("bgrst,bgte->bgrse", weights / np.where(total == 0, 1, total), self.v)
        with np.errstate(divide="ignore"):
            return out, (np.log(total) + largest)[..., 0]

    def backward(self, statistics: NDArray, out: NDArray, dout: NDArray) -> tuple[NDArray, ...]:
        """Return the gradients (dq, dk, dv, and of the scores): p = exp(scores - lse); dv = p^T dout;
        ds = p (dout v^T - sum(dout out)); dq = scale ds k; dk = scale ds^T q.
        """
        with np.errstate(invalid="ignore"):
            weights = np.where(self.visible, np.exp(self.scores - statistics[..., None]), 0)
        dv = np.einsum("bgrst,bgrse->bgte", weights, dout)
        inner = np.einsum("bgrse,bgte->bgrst", dout, self.v)
        ds = weights * (inner - (dout * out).sum(axis=-1, keepdims=True))
        scaled = ds * ds.dtype.type(self.scale)
        dq = np.einsum("bgrst,bgtd->bgrsd", scaled, self.k)
        return dq, np.einsum("bgrst,bgrsd->bgtd", scaled, self.q), dv, ds


def grouped(x: NDArray, groups: int) -> NDArray:
    """Split the heads of [b,h,s,d]: [b,g,r,s,d]."""
    b, h, s, d = x.shape
    return x.reshape(b, groups, h // groups, s, d)
