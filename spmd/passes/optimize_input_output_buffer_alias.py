"""Let results take the place of parameters that their caller has donated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import BufferDonor, HloModule, InputOutputAlias, Stage
from spmd.ops.checks import same_type
from spmd.passes.interface import HloPass, register_pass
from spmd.shape import ArrayShape, ShapeIndex, leaves
from spmd.sharding import HloSharding

_Leaf: TypeAlias = tuple[ArrayShape, HloSharding | None]
"""An array of a parameter or of the result."""


@register_pass
@dataclass(frozen=True)
class OptimizeInputOutputBufferAlias(HloPass):
    """buffer_donor={ (0, {}) }  =>  input_output_alias={ {1}: (0, {}, may-alias) }

    for the first result of the donor's shape and sharding that shares no memory yet, else the first of its shape. JAX
    leaves this to the compiler where it does not know how results are sharded, so it is done on one device's program.
    A donor that no result fits stays one.
    """

    name: ClassVar[str] = "optimize-input-output-buffer-alias"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)

    def run(self, module: HloModule) -> bool:
        pairs = dict(match_donors(module))
        module.input_output_alias += tuple(
            InputOutputAlias(index, donor.parameter, donor.parameter_index)
            for donor, index in pairs.items()
        )
        module.buffer_donors = tuple(d for d in module.buffer_donors if d not in pairs)
        return bool(pairs)


def match_donors(module: HloModule) -> Iterator[tuple[BufferDonor, ShapeIndex]]:
    """Each donor with the result that takes its place, as far as there is one."""
    taken = {alias.output_index for alias in module.input_output_alias}
    aliased = {(a.parameter, a.parameter_index) for a in module.input_output_alias}
    results = {i: leaf for i, leaf in array_leaves(module.entry.root).items() if i not in taken}
    donors = [d for d in module.buffer_donors if (d.parameter, d.parameter_index) not in aliased]
    for compared in (_same_tile, _same_shape):
        for donor in tuple(donors):
            given = array_leaves(module.entry.parameters[donor.parameter])
            leaf = given.get(donor.parameter_index)
            fitting = [i for i, r in results.items() if leaf is not None and compared(leaf, r)]
            if fitting:
                del results[fitting[0]]
                donors.remove(donor)
                yield donor, fitting[0]


def array_leaves(x: HloInstruction) -> dict[ShapeIndex, _Leaf]:
    """Shape and sharding of the arrays that an instruction's value consists of."""
    found = list(leaves(x.shape))
    shardings: Sequence[HloSharding | None] = (None,) * len(found)
    if x.sharding is not None:
        shardings = x.sharding.leaf_shardings(x.shape)
    return {
        index: (shape, sharding)
        for (index, shape), sharding in zip(found, shardings, strict=True)
        if isinstance(shape, ArrayShape)
    }


def _same_shape(donor: _Leaf, result: _Leaf) -> bool:
    return same_type(donor[0], result[0]) and donor[0].memory_space == result[0].memory_space


def _same_tile(donor: _Leaf, result: _Leaf) -> bool:
    return _same_shape(donor, result) and donor[1] == result[1]
