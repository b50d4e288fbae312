"""FusedAttentionRates: rates of a GPU library's fused attention by head depth, sequence length, direction and mask."""

from __future__ import annotations

import math

import numpy as np

from spmd.analysis.attention_cost import AttentionShape
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class AttentionSeries:
    """Floating-point operations per second for one depth and direction.

    kind: element type of queries, keys and values. flops: at each of the table's lengths; with a causal mask, half of
    the pairs of queries and keys count.
    """

    kind: PrimitiveType
    depth: int
    backward: bool
    causal: bool
    flops: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FusedAttentionRates:
    """Rates of fused attention.

    keys: the lengths at which each of ``series`` was measured, in growing order. Between them, rates are interpolated
    by the logarithm of the length. attained: fraction of the rates that the library sustains.
    """

    keys: tuple[int, ...]
    series: tuple[AttentionSeries, ...]
    attained: float
    source: str = ""

    def rate(self, kind: PrimitiveType, shape: AttentionShape) -> float | None:
        """Return the sustained flops per second; None if no series has this type and direction.

        A depth that was not measured has the rate of the nearest one. If a direction was measured without a causal mask
        only, the mask costs as much as in the other direction.
        """
        measured = self._burst(kind, shape.depth, shape.keys, shape.backward, shape.causal)
        if measured is None and shape.causal:
            measured = self._burst(kind, shape.depth, shape.keys, shape.backward, causal=False)
            masked, full = (
                self._burst(kind, shape.depth, shape.keys, not shape.backward, causal)
                for causal in (True, False)
            )
            if measured is not None and masked is not None and full is not None:
                measured *= masked / full
        return None if measured is None else measured * self.attained

    def _burst(
        self, kind: PrimitiveType, depth: int, keys: int, backward: bool, causal: bool
    ) -> float | None:
        found = [
            one
            for one in self.series
            if (one.kind, one.backward, one.causal) == (kind, backward, causal)
        ]
        if not found:
            return None
        nearest = min(found, key=lambda one: (abs(math.log(one.depth / max(depth, 1))), one.depth))
        return float(np.interp(math.log(max(keys, 1)), np.log(self.keys), nearest.flops))
