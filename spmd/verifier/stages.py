"""Rules of stages: where shardings may stand, and that they fit."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.errors import ShardingError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.custom_call import PARTITIONER_CALLS, custom_call_target
from spmd.ops.inference import describe
from spmd.shape import ArrayShape, Shape, TupleShape, leaves
from spmd.verifier.rule import Rule


def shardings_fit(module: HloModule) -> Iterator[str]:
    """Yield shardings that do not fit: a tiled one has one entry per dimension, a tuple sharding one per leaf."""
    if module.stage >= Stage.PARTITIONED:
        return
    for x in module.all_instructions():
        if x.sharding is not None:
            for problem in _sharding_problems(x):
                yield f"{problem}: {describe(x)}"


def _sharding_problems(x: HloInstruction) -> Iterator[str]:
    assert x.sharding is not None
    shape = _sharded_shape(x)
    if x.sharding.is_tuple and not any(True for _ in leaves(shape)):
        return  # the sharding of an empty tuple has no meaning
    try:
        parts = x.sharding.leaf_shardings(shape)
    except ShardingError as error:
        yield str(error)
        return
    for (_, leaf), sharding in zip(leaves(shape), parts, strict=True):
        if (
            isinstance(leaf, ArrayShape)
            and sharding.is_tiled
            and len(sharding.tile_dims) != leaf.rank
        ):
            yield f"sharding {sharding} has {len(sharding.tile_dims)} dimensions, the shape {leaf} has {leaf.rank}"


def _sharded_shape(x: HloInstruction) -> Shape:
    """Return the shape that a sharding describes. That of an outfeed is the data, then the token, which may be left
    out.
    """
    assert x.sharding is not None
    if x.opcode is not Opcode.OUTFEED or not x.sharding.is_tuple or not x.operands:
        return x.shape
    data = x.operand(0).shape
    if len(x.sharding.elements) == sum(1 for _ in leaves(data)):
        return data
    return TupleShape((data, x.shape))


def shardings_are_gone(module: HloModule) -> Iterator[str]:
    """Yield shardings that partitioning should have removed: only parameters, the result, infeeds and outfeeds have
    one.

    Scheduled modules are not checked: XLA's own have a parameter's sharding on its layout copies, where it means
    nothing.
    """
    if not Stage.PARTITIONED <= module.stage < Stage.SCHEDULED:
        return
    for x in module.all_instructions():
        if x.sharding is not None and not has_external_sharding(x, module):
            yield f"sharding={x.sharding} inside a partitioned module: {describe(x)}"


def has_external_sharding(x: HloInstruction, module: HloModule) -> bool:
    """Return whether a sharding of ``x`` describes what the caller gives or gets."""
    if x.opcode in (Opcode.INFEED, Opcode.OUTFEED):
        return True
    return x.parent is module.entry and (x.opcode is Opcode.PARAMETER or x.is_root)


def partitioner_calls_are_gone(module: HloModule) -> Iterator[str]:
    if module.stage < Stage.PARTITIONED:
        return
    for x in module.all_instructions():
        if (target := custom_call_target(x)) in PARTITIONER_CALLS:
            yield f"custom-call {target} inside a partitioned module: {describe(x)}"


STAGE_RULES = (
    Rule("sharding", "a sharding fits its shape", shardings_fit),
    Rule("partitioned", "shardings stand only on entry parameters and root", shardings_are_gone),
    Rule(
        "partitioned",
        "no call is left that only the partitioner understands",
        partitioner_calls_are_gone,
    ),
)
