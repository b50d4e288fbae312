"""What `spmd stats` counts: the keys that scripts read, and the reshards that cost more than they had to."""

from __future__ import annotations

from pathlib import Path

import spmd
from launch.report.statistics import collect_statistics, format_statistics

CASES = Path(__file__).parents[2] / "cases"
# 257 rows over 8 devices and over 4 have no tile edge in common, so the partitioner replicates on the way.
UNEVEN = """
HloModule uneven, num_partitions=8
ENTRY main {
  x = f32[257,255] parameter(0), sharding={devices=[8,1]<=[8]}
  ROOT y = f32[257,255] negate(x), sharding={devices=[4,2]<=[8]}
}
"""
KEYS = [
    "module", "devices", "instructions", "kernels", "flops", "bytes_accessed", "collectives", "wire_bytes", "memory",
    "implicit_full_replications", "compile_s",
]  # fmt: skip


def test_every_key_of_the_interface() -> None:
    figures = collect_statistics(
        spmd.load(CASES / "mlp_dp2" / "module.hlo"), None, spmd.CompileOptions()
    ).as_json()
    assert set(KEYS) <= set(figures)
    assert set(figures["instructions"]) == {"logical", "partitioned", "optimized"}
    assert {"arguments", "outputs", "aliased", "temp", "peak_live"} <= set(figures["memory"])
    for cost in figures["collectives"].values():
        assert set(cost) == {"count", "executed", "bytes", "wire_bytes"}
    seconds = dict(figures["compile_s"])
    total = seconds.pop("total")
    assert set(seconds) == {"partitioned", "optimized", "scheduled", "thunks"}
    assert total == sum(seconds.values())
    assert figures["implicit_full_replications"] == []


def test_a_value_that_is_replicated_on_its_way_is_listed() -> None:
    statistics = collect_statistics(spmd.parse(UNEVEN), None, spmd.CompileOptions())
    (one,) = statistics.as_json()["implicit_full_replications"]
    assert (one["from"], one["to"]) == ("{devices=[8,1]<=[8]}", "{devices=[4,2]<=[8]}")
    assert one["shape"] == "f32[257,255]"
    # An all-gather of tiles of 33 rows: seven of them arrive.
    assert one["bytes"] == 7 * 33 * 255 * 4
    assert one["bound"] * 1.5 < one["bytes"]
    assert "235,620 bytes" in format_statistics(statistics)


def test_small_reshards_and_those_at_their_bound_are_not_listed() -> None:
    for text in (UNEVEN.replace("257,255", "17,15"), UNEVEN.replace("257,255", "256,256")):
        statistics = collect_statistics(spmd.parse(text), None, spmd.CompileOptions())
        assert statistics.cost.wire_bytes > 0
        assert statistics.implicit_full_replications == ()
