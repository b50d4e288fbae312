"""Tests of `spmd stats`: the keys that scripts read, and the reshards that cost more than they had to."""

from __future__ import annotations

import spmd
from launch.report.statistics import Statistics, count_executable, format_statistics
from tests.paths import CASES
from tests.runtime.programs import SHARING, SPACES

# Two axes of different sizes trade places: no step keeps the tiles small, so the partitioner gathers on the way.
TRADED = """
HloModule traded, num_partitions=6
ENTRY main {
  x = f32[120,126] parameter(0), sharding={devices=[2,3]<=[6]}
  ROOT y = f32[120,126] negate(x), sharding={devices=[3,2]<=[2,3]T(1,0)}
}
"""
KEYS = [
    "module", "devices", "instructions", "kernels", "flops", "bytes_accessed", "collectives", "wire_bytes", "memory",
    "implicit_full_replications", "compile_s",
]  # fmt: skip


def statistics_of(module: spmd.HloModule, options: spmd.CompileOptions | None = None) -> Statistics:
    return count_executable(module, None, options or spmd.CompileOptions())[0]


def test_every_key_of_the_interface() -> None:
    figures = statistics_of(spmd.load(CASES / "mlp_dp2" / "module.hlo")).as_json()
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
    statistics = statistics_of(spmd.parse(TRADED))
    (one,) = statistics.as_json()["implicit_full_replications"]
    assert (one["from"], one["to"]) == ("{devices=[2,3]<=[6]}", "{devices=[3,2]<=[2,3]T(1,0)}")
    assert one["shape"] == "f32[120,126]"
    assert one["bound"] * 1.5 < one["bytes"]
    assert f"{one['bytes']:,.0f} bytes" in format_statistics(statistics)


def test_small_reshards_and_those_at_their_bound_are_not_listed() -> None:
    turned = TRADED.replace("{devices=[3,2]<=[2,3]T(1,0)}", "{devices=[1,6]<=[6]}")
    for text in (TRADED.replace("120,126", "12,18"), turned):
        statistics = statistics_of(spmd.parse(text))
        assert statistics.cost.wire_bytes > 0
        assert statistics.implicit_full_replications == ()


def test_memory_by_colour() -> None:
    """Memory that groups hold once is listed by their size, and memory spaces where there are several."""
    options = spmd.CompileOptions()
    shared = statistics_of(spmd.parse(SHARING["shared"]), options)
    assert shared.memory["shared_by_2"] > 0
    assert "shared_by_2 bytes" in format_statistics(shared)
    assert "space_0" not in shared.memory
    spaces = statistics_of(spmd.parse(SPACES), options).memory
    assert spaces["space_0"] > 0
    assert spaces["space_5"] > 0
