"""Random programs are partitioned without changing what they compute; and the checker would say so if they were not."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from partitioner.reshard import search
from tests.differential.equivalence import NotEquivalentError, check_partitioned
from tests.differential.fuzz import failure
from tests.differential.generator.table import OPERATIONS
from tests.mutants.patching import clear_caches
from tests.strategies import generate

#: Twenty seeds from each of these on: they reach all lines of the partitioner that the first 150 do, but five.
#: `python -m tests.differential.fuzz --count 5000` runs more.
STARTS = (0, 20, 40, 80)

LOGICAL = """HloModule m
ENTRY main {
  x = f32[6] parameter(0), sharding={devices=[2]<=[2]}
  two = f32[] constant(2)
  b = f32[6] broadcast(two), dimensions={}
  ROOT r = f32[6] multiply(x, b), sharding={devices=[2]<=[2]}
}
"""

PARTITIONED = """HloModule m, num_partitions=2
ENTRY main {
  x = f32[3] parameter(0), sharding={devices=[2]<=[2]}
  two = f32[] constant(2)
  b = f32[3] broadcast(two), dimensions={}
  ROOT r = f32[3] multiply(x, b), sharding={devices=[2]<=[2]}
}
"""


@pytest.mark.parametrize("start", STARTS)
def test_random_programs(start: int) -> None:
    failures = {}
    for seed in range(start, start + 20):
        program = generate(seed)
        found = failure(program.module, program.num_devices, seed)
        if found is not None:
            failures[seed] = found
    assert failures == {}


def test_random_programs_resharded_through_finer_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans over prime parts of axes pay off for large arrays alone: here they are taken wherever there is one."""
    monkeypatch.setattr(search, "FINER_SEARCH_BYTES", -1e9)
    monkeypatch.setattr(search, "FINER_SEARCH_RATIO", 0.0)
    monkeypatch.setattr(search, "MIN_FINER_GAIN", 0.5)
    clear_caches()
    failures = {}
    for seed in range(1000, 1040):
        program = generate(seed)
        found = failure(program.module, program.num_devices, seed)
        if found is not None:
            failures[seed] = found
    clear_caches()
    assert failures == {}


def test_a_seed_is_a_program() -> None:
    for seed in range(20):
        assert str(generate(seed).module) == str(generate(seed).module)


def test_programs_hold_every_operation() -> None:
    """Each entry of the table gets written: none is forgotten by a condition that never holds."""
    wanted = {
        "all-gather", "all-reduce", "all-to-all", "broadcast", "call", "clamp", "collective-permute", "compare",
        "concatenate", "conditional", "convert", "convolution", "custom-call", "divide", "dot", "dynamic-slice",
        "dynamic-update-slice", "gather", "iota", "pad", "partition-id", "reduce", "reduce-scatter", "reduce-window",
        "reshape", "reverse", "scatter", "select", "slice", "sort", "transpose", "tuple", "while",
    }  # fmt: skip
    missing = wanted
    for seed in range(300):
        missing = missing - {i.opcode.value for i in generate(seed).module.all_instructions()}
        if not missing:
            break
    assert missing == set()
    assert len(OPERATIONS) >= 30


# ---- the checker itself
def check(partitioned: str) -> None:
    check_partitioned(
        spmd.parse(LOGICAL), spmd.parse(partitioned), 2, [np.arange(6, dtype=np.float32)]
    )


def test_accepts_what_is_right() -> None:
    check(PARTITIONED)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("constant(2)", "constant(3)", "5 of 6 elements differ"),
        ("constant(2)", "constant(2.0001)", "5 of 6 elements differ"),
        ("ROOT r = f32[3] multiply(x, b), sharding={devices=[2]<=[2]}",
         "ROOT r = f32[3] multiply(x, b), sharding={replicated}", "output 0: the annotation demands"),
        ("x = f32[3] parameter(0), sharding={devices=[2]<=[2]}",
         "x = f32[3] parameter(0), sharding={devices=[2]1,0}", "parameter 0: the annotation demands"),
    ],
)  # fmt: skip
def test_finds(old: str, new: str, message: str) -> None:
    assert old in PARTITIONED
    with pytest.raises(NotEquivalentError, match=message):
        check(PARTITIONED.replace(old, new))


def test_finds_copies_that_differ() -> None:
    logical = "HloModule m\nENTRY main {\n  ROOT x = u32[] constant(0)\n}\n"
    partitioned = (
        "HloModule m, num_partitions=2\nENTRY main {\n"
        "  ROOT p = u32[] partition-id(), sharding={replicated}\n}\n"
    )
    with pytest.raises(NotEquivalentError, match="devices 0 and 1 hold different tiles"):
        check_partitioned(spmd.parse(logical), spmd.parse(partitioned), 2, [])


def test_finds_padding_that_reaches_a_result() -> None:
    """5 over 2 devices: the second tile ends in padding, which a plain sum would take along."""
    logical = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[5] parameter(0), sharding={devices=[2]<=[2]}
  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add
}
"""
    partitioned = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[3] parameter(0), sharding={devices=[2]<=[2]}
  z = f32[] constant(0)
  s = f32[] reduce(x, z), dimensions={0}, to_apply=add
  ROOT r = f32[] all-reduce(s), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, to_apply=add, sharding={replicated}
}
"""
    with pytest.raises(NotEquivalentError, match="found nan"):
        check_partitioned(spmd.parse(logical), spmd.parse(partitioned), 2, [np.ones(5, np.float32)])
