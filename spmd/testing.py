"""Assertions for tests of sharding propagation: in pytest, a failing one shows what it found instead, and why.

    spmd.testing.assert_sharding(module, "dot.3", "{devices=[2,1]<=[2]}")
    spmd.testing.assert_collectives(module, 4, {"all-reduce": 1})
    spmd.testing.assert_no_collective(module, 4, "all-gather", serving="dot.3")
    spmd.testing.assert_wire_bytes(module, 4, at_most=1e6)
    spmd.testing.assert_no_reshard_above(module, 4, max_bytes=4096)

``module``: a logical HloModule, or its text. The partitioner is loaded when first used, as in ``spmd`` itself.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from spmd.hlo import HloModule
from spmd.sharding import HloSharding, ShardingKind, SubgroupType
from spmd.text.parser import parse_module
from spmd.text.sharding.sharding_text import parse_sharding
from spmd.text.stage import device_count

__all__ = [
    "assert_collectives",
    "assert_no_collective",
    "assert_no_reshard_above",
    "assert_sharding",
    "assert_wire_bytes",
]


def assert_sharding(
    module: HloModule | str, name: str, expected: str, devices: int | None = None
) -> None:
    """Assert that propagation gives instruction ``name`` the sharding ``expected`` (HLO text; compared by meaning).

    Raises AssertionError with the sharding found and its chain of causes, or if there is no such instruction.
    """
    explanation = _explain(module, devices)
    instruction = _require(explanation, name)
    if not _same(instruction.sharding, expected):
        causes = "".join(f"\n  {line}" for line in instruction.because)
        raise AssertionError(f"{name} has {instruction.sharding}, expected {expected}{causes}")


def assert_collectives(
    module: HloModule | str, devices: int | None, expected: Mapping[str, int]
) -> None:
    """Assert that the per-device program, before optimization, has exactly these collectives: number by kind.

    Raises AssertionError with each collective of the program and the op that it serves.
    """
    explanation = _explain(module, devices)
    found = Counter(c.kind for c in explanation.collectives)
    wanted = {kind: count for kind, count in expected.items() if count}
    if dict(found) != wanted:
        each = "".join(
            f"\n  {c.name} {c.shape} for {c.op}: {c.because[0]}" for c in explanation.collectives
        )
        raise AssertionError(f"collectives {dict(sorted(found.items()))}, expected {wanted}{each}")


def assert_no_collective(
    module: HloModule | str,
    devices: int | None = None,
    kind: str | None = None,
    *,
    serving: str | None = None,
) -> None:
    """Assert that the per-device program, before optimization, has no collective (of ``kind``; that serves the op
    ``serving``).

    Raises AssertionError with each such collective and its cause.
    """
    explanation = _explain(module, devices)
    if serving is not None:
        _require(explanation, serving)
    found = [
        c
        for c in explanation.collectives
        if kind in (None, c.kind) and (serving is None or serving in (c.op, c.value))
    ]
    if found:
        each = "".join(f"\n  {c.name} {c.shape} for {c.op}: {c.because[0]}" for c in found)
        raise AssertionError(f"{len(found)} collectives, expected none{each}")


def assert_wire_bytes(
    module: HloModule | str, devices: int | None = None, *, at_most: float
) -> None:
    """Assert that a device sends at most so many bytes in a run of the program, before optimization (loops times their
    trips).

    Raises AssertionError with the collectives that send most.
    """
    explanation = _explain(module, devices)
    if explanation.wire_bytes > at_most:
        each = "".join(
            f"\n  {c.name} {c.shape} for {c.op}: {c.total_bytes:,.0f} bytes"
            for c in explanation.collectives[:10]
        )
        raise AssertionError(
            f"each device sends {explanation.wire_bytes:,.0f} bytes, at most {at_most:,.0f} expected{each}"
        )


def assert_no_reshard_above(
    module: HloModule | str, devices: int | None = None, *, max_bytes: float
) -> None:
    """Assert that no reshard receives more than ``max_bytes`` on a device in one execution.

    Raises AssertionError with each that does, its shardings and the least it could receive.
    """
    explanation = _explain(module, devices)
    costly = explanation.costly(max_bytes, 0.0)
    if costly:
        text = importlib.import_module("partitioner.explain.text").format_costly(costly)
        raise AssertionError(f"{len(costly)} reshards above {max_bytes:g} bytes\n{text}")


def _explain(module: HloModule | str, devices: int | None) -> Any:
    """Return an Explanation without remedies. Its type is Any: the language may not import the partitioner."""
    read = parse_module(module) if isinstance(module, str) else module
    count = devices if devices is not None else device_count(read)
    return importlib.import_module("partitioner.explain.explain").explain_module(
        read, count, max_tried=0
    )


def _require(explanation: Any, name: str) -> Any:
    for instruction in explanation.instructions:
        if instruction.name == name:
            return instruction
    raise AssertionError(
        f"no instruction {name!r} in the module after its simplification before partitioning"
    )


def _same(found: str, expected: str) -> bool:
    return _canonical(parse_sharding(found)) == _canonical(parse_sharding(expected))


def _canonical(sharding: HloSharding) -> object:
    """Return a form in which two notations of one tiling (an iota or a list, copies in any order) are equal."""
    if sharding.is_tuple:
        return tuple(map(_canonical, sharding.elements))
    if sharding.tiles is None:
        return (sharding.kind, sharding.device)
    copies = all(kind is SubgroupType.REPLICATED for kind in sharding.subgroup_types)
    if copies and math.prod(sharding.tile_dims) == 1:
        return (ShardingKind.REPLICATED, 0)
    ids = sharding.tiles.device_ids().reshape(*sharding.tile_dims, -1)
    listed = np.sort(ids, axis=-1) if copies else ids
    return (sharding.tile_dims, () if copies else sharding.subgroup_types, listed.tolist())
