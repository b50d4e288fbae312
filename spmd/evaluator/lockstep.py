"""Evaluation of a per-device program on all its devices at once."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.errors import ShapeError
from spmd.evaluator.arguments import entry_arguments, output_arrays
from spmd.evaluator.device import Device
from spmd.evaluator.interpreter import run_computation
from spmd.evaluator.numerics import quiet
from spmd.evaluator.op_tables import REGISTERED, OpTables
from spmd.evaluator.rendezvous import run_in_lockstep
from spmd.evaluator.session import Session
from spmd.evaluator.value import NDArray
from spmd.hlo.module import HloModule
from spmd.host_feed import HostFeed, UnpartitionedFeed


def evaluate_partitions(
    module: HloModule,
    per_device: Sequence[Sequence[NDArray]],
    tables: OpTables = REGISTERED,
    feed: HostFeed | None = None,
) -> list[list[NDArray]]:
    """Evaluate on every device; device = replica * num_partitions + partition. Takes the inputs and returns the outputs
    of every device.

    A module that does not state its partitions takes them from the number of inputs. Raises ShapeError for inputs that
    do not fit, CollectiveTimeoutError for collectives whose groups never meet. ``feed``: the host's side of infeeds and
    outfeeds; without it an infeed fails and outfeeds are dropped.
    """
    count, replicas = len(per_device), module.replica_count
    partitions = module.num_partitions
    if partitions == 1 and count % replicas == 0:
        partitions = count // replicas
    if count != replicas * partitions:
        raise ShapeError(
            f"{module.name} has {replicas} replicas x {partitions} partitions, found inputs for {count} devices"
        )
    session = Session(module, tables, feed or UnpartitionedFeed(None, None))
    with quiet():
        steps = {
            id_: run_computation(
                module.entry,
                entry_arguments(module, arrays),
                Device(id_, replicas, partitions, session),
            )
            for id_, arrays in enumerate(per_device)
        }
        values = run_in_lockstep(steps)
        return [output_arrays(module, values[id_]) for id_ in range(count)]
