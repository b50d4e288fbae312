"""Rates of fused attention in a machine description's JSON."""

from __future__ import annotations

from functools import partial

from spmd.json_fields import JsonFields, shown
from spmd.machine.attention import AttentionSeries, FusedAttentionRates
from spmd.machine.bounds import COUNT, FRACTION, RATE
from spmd.machine.exchange_fields import printable
from spmd.shape import PrimitiveType

_NAMED = {kind.value: kind for kind in PrimitiveType}


def attention_fields(table: FusedAttentionRates) -> dict[str, object]:
    """Return the fields that ``read_attention`` reads as an equal table."""
    return {
        "keys": list(table.keys),
        "attained": table.attained,
        "series": [
            {
                "type": one.kind.value,
                "depth": one.depth,
                "backward": int(one.backward),
                "causal": int(one.causal),
                "flops": list(one.flops),
            }
            for one in table.series
        ],
        "source": table.source,
    }


def read_attention(fields: JsonFields) -> FusedAttentionRates:
    """Return the table in ``fields``. Raises their error for a value that is not plausible."""
    keys = tuple(map(int, fields.numbers("keys", COUNT)))
    if list(keys) != sorted(set(keys)):
        raise fields.error(f"{fields.where}: keys must grow")
    table = FusedAttentionRates(
        keys,
        fields.items("series", partial(_series, count=len(keys)), 1),
        fields.number("attained", FRACTION),
        printable(fields, "source"),
    )
    fields.done()
    measured = {(one.kind, one.backward, one.causal) for one in table.series}
    if not {(PrimitiveType.BF16, backward, False) for backward in (False, True)} <= measured:
        raise fields.error(
            f"{fields.where}: series must have bf16 forward and backward without a causal mask"
        )
    return table


def _series(fields: JsonFields, count: int) -> AttentionSeries:
    name = fields.text("type")
    if name not in _NAMED:
        raise fields.error(f"{fields.where}: no element type is named {shown(name)}")
    series = AttentionSeries(
        _NAMED[name],
        fields.integer("depth", COUNT),
        bool(fields.integer("backward", (0, 1))),
        bool(fields.integer("causal", (0, 1))),
        fields.numbers("flops", RATE),
    )
    fields.done()
    if len(series.flops) != count:
        raise fields.error(f"{fields.where}: flops must be {count} numbers, one for each of keys")
    return series
