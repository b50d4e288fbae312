"""What a module means, by the reference evaluators: whole arrays in and out, partitioned or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from launch.npz import Array
from runtime.compile import boundaries
from runtime.sharded_arrays import Boundary
from runtime.tiles import gather, shard_of
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.evaluator.op_tables import REGISTERED, OpTables
from spmd.hlo import HloModule
from spmd.hlo.clone import clone_module
from spmd.text.stage import device_count

Reference: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""Global inputs to global outputs, once."""


def evaluate_per_device(
    module: HloModule,
    inputs: Sequence[Array],
    places: tuple[Sequence[Boundary], Sequence[Boundary]],
    tables: OpTables = REGISTERED,
) -> list[Array]:
    """Outputs of one device's program, run in lock step on all of them; replica 0's where there are several.

    ``places`` of inputs and outputs: how whole arrays become tiles and back.
    """
    partitions = range(module.num_partitions)
    tiles = tiles_of(module, inputs, places)
    results = evaluate_partitions(module, tiles, tables)
    return [
        gather([results[partition][k] for partition in partitions], place.sharding, place.shape)
        for k, place in enumerate(places[1])
    ]


def tiles_of(
    module: HloModule,
    inputs: Sequence[Array],
    places: tuple[Sequence[Boundary], Sequence[Boundary]],
) -> list[list[Array]]:
    """Return the inputs of every device, replica after replica."""
    return [
        [
            shard_of(array, place.sharding, place.shape, partition)
            for array, place in zip(inputs, places[0], strict=True)
        ]
        for _ in range(module.replica_count)
        for partition in range(module.num_partitions)
    ]


@dataclass(frozen=True)
class ReferenceProgram:
    """A module and how it is evaluated: unpartitioned, or with `places` as one device's program on all devices."""

    module: HloModule
    places: tuple[Sequence[Boundary], Sequence[Boundary]] | None = None

    def evaluate(self, arrays: Sequence[Array], tables: OpTables = REGISTERED) -> list[Array]:
        """Global outputs for global inputs. `tables`: the functions that opcodes are evaluated with."""
        if self.places is None:
            return evaluate(self.module, *arrays, tables=tables)
        return evaluate_per_device(self.module, arrays, self.places, tables)

    def tiles(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """Return the inputs of every device of one device's program."""
        assert self.places is not None
        return tiles_of(self.module, arrays, self.places)


def reference_program(
    module: HloModule, devices: int | None, *, partitioned: bool
) -> ReferenceProgram:
    """Return what evaluates ``module``; ``partitioned``: it is one device's program, for ``devices``."""
    if not partitioned:
        return ReferenceProgram(module)
    program = clone_module(module)
    count = devices if devices is not None else device_count(module)
    program.num_partitions = count // program.replica_count
    return ReferenceProgram(program, boundaries(program))


def reference_of(module: HloModule, devices: int | None, *, partitioned: bool) -> Reference:
    """The evaluator that says what ``module`` means; ``partitioned``: it is one device's program, for ``devices``."""
    return reference_program(module, devices, partitioned=partitioned).evaluate
