"""Meaning of a module by the reference evaluators: global arrays in and out, partitioned or not."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from launch.data.feed_files import FeedOptions, GivingFeed
from launch.data.inputs import Array
from runtime.arrays.sharded_arrays import ArraySpec, gather, shard_of
from runtime.compile import array_specs
from spmd.errors import RunError
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.evaluator.op_tables import REGISTERED, OnTrip, OpTables
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.host_feed import HostFeed
from spmd.lazy_dataclass import dataclass
from spmd.text.stage import device_count


class Reference(Protocol):
    """Global inputs to global outputs, once; `feed` is the host's side of infeeds and outfeeds."""

    def __call__(
        self, arrays: Sequence[Array], /, *, feed: HostFeed | None = None
    ) -> list[Array]: ...


def evaluate_per_device(
    module: HloModule,
    inputs: Sequence[Array],
    specs: tuple[Sequence[ArraySpec], Sequence[ArraySpec]],
    tables: OpTables = REGISTERED,
    feed: HostFeed | None = None,
) -> list[Array]:
    """Return the outputs of one device's program, run in lock step on all devices; replica 0's if there are several.

    ``specs`` of inputs and outputs: how global arrays become tiles and back.
    """
    partitions = range(module.num_partitions)
    tiles = tiles_of(module, inputs, specs)
    results = evaluate_partitions(module, tiles, tables, feed)
    return [
        gather([results[partition][k] for partition in partitions], spec.sharding, spec.shape)
        for k, spec in enumerate(specs[1])
    ]


def tiles_of(
    module: HloModule,
    inputs: Sequence[Array],
    specs: tuple[Sequence[ArraySpec], Sequence[ArraySpec]],
) -> list[list[Array]]:
    """Return the inputs of every device, replica after replica."""
    return [
        [
            shard_of(array, spec.sharding, spec.shape, partition)
            for array, spec in zip(inputs, specs[0], strict=True)
        ]
        for _ in range(module.replica_count)
        for partition in range(module.num_partitions)
    ]


@dataclass(frozen=True)
class ReferenceProgram:
    """A module to evaluate as a reference.

    specs: shardings of inputs and outputs if the module is one device's program; None for an unpartitioned module.
    seconds: an evaluation that takes longer is stopped.
    show: function that gets lines on the progress.
    """

    module: HloModule
    specs: tuple[Sequence[ArraySpec], Sequence[ArraySpec]] | None = None
    seconds: float = math.inf
    show: Callable[[str], None] | None = None

    def evaluate(
        self,
        arrays: Sequence[Array],
        tables: OpTables = REGISTERED,
        feed: HostFeed | None = None,
    ) -> list[Array]:
        """Return global outputs for global inputs. ``tables``: the functions that evaluate opcodes.

        ``feed``: the host's side of infeeds and outfeeds.

        Raises RunError after ``seconds``.
        """
        tables = replace(tables, on_trip=_watch(self.seconds, self.show))
        if self.specs is None:
            return evaluate(self.module, *arrays, tables=tables, infeed=feed)
        return evaluate_per_device(self.module, arrays, self.specs, tables, feed)

    def feed(self, files: FeedOptions) -> GivingFeed | None:
        """Return the host's side of an evaluation, from its beginning; None for a program without one."""
        feeds = (Opcode.INFEED, Opcode.OUTFEED)
        if all(x.opcode not in feeds for x in self.module.all_instructions()):
            return None
        return files.reference(self.module, partitioned=self.specs is not None)

    def tiles(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """Return the inputs of every device of one device's program."""
        assert self.specs is not None
        return tiles_of(self.module, arrays, self.specs)


#: Number of loop trips between two checks of the clock.
_TRIPS = 64


def _watch(seconds: float, show: Callable[[str], None] | None) -> OnTrip:
    """Return what is called for each trip of a loop; it raises RunError after `seconds`."""
    end, calls = time.monotonic() + seconds, itertools.count()

    def on_trip(loop: HloInstruction, trip: int) -> None:
        if next(calls) % _TRIPS:
            return
        if time.monotonic() > end:
            raise RunError(
                f"the reference evaluator was stopped after {seconds:g} s (--timeout), "
                f"after {trip:,} trips of the loop {loop.name}"
            )
        if show is not None:
            show(f"the reference evaluator has done {trip:,} trips of the loop {loop.name}")

    return on_trip


def reference_program(
    module: HloModule,
    devices: int | None,
    *,
    partitioned: bool,
    seconds: float = math.inf,
    show: Callable[[str], None] | None = None,
) -> ReferenceProgram:
    """Return what evaluates ``module``; ``partitioned``: it is one device's program, for ``devices``."""
    if not partitioned:
        return ReferenceProgram(module, None, seconds, show)
    program = clone_module(module)
    count = devices if devices is not None else device_count(module)
    program.num_partitions = count // program.replica_count
    return ReferenceProgram(program, array_specs(program), seconds, show)
