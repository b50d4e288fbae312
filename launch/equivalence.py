"""Does a transformed module still mean what it meant? Both are evaluated on the same random inputs."""

from __future__ import annotations

from collections.abc import Sequence

from launch.expect import Expected, check_output, default_tolerance
from launch.inputs import seeded_inputs
from launch.npz import Array
from runtime.compile import build_executable
from runtime.executable import Executable
from runtime.tiles import gather, shard_of
from spmd.errors import CheckFailed
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.hlo import HloModule, Stage
from spmd.hlo.clone import clone_module


def verify_equivalent(
    before: HloModule, after: HloModule, logical: HloModule | None, seed: int = 0
) -> None:
    """CheckFailed, naming the outputs, unless the reference evaluator gives both the same on inputs from ``seed``.

    A per-device module is evaluated on all its devices, its tiles gathered. ``logical``: the unpartitioned module that
    both come from, whose entry has the global shapes.
    """
    boundary = _boundary(before if before.stage >= Stage.PARTITIONED else after, logical)
    inputs = seeded_inputs(seed, [one.shape for one in boundary.inputs])
    wanted, found = (_outputs(module, boundary, inputs) for module in (before, after))
    differences = []
    for k, (want, got, place) in enumerate(zip(wanted, found, boundary.outputs, strict=True)):
        tolerance = default_tolerance(place.shape.element_type, want)
        check = check_output(got, Expected(f"out{k}", place.shape, want, tolerance))
        if not check.ok:
            differences.append(
                f"{check.name} by {check.max_abs_diff:.3g} ({check.of_tolerance:.2g} of tolerance)"
            )
    if differences:
        raise CheckFailed(
            f"{after.name}: not equivalent to what it was made of: {', '.join(differences)}"
        )


def _boundary(module: HloModule, logical: HloModule | None) -> Executable:
    """How global arrays lie on the devices: what an executable of the module says."""
    return build_executable(clone_module(module), check=False, logical=logical)


def _outputs(module: HloModule, boundary: Executable, inputs: Sequence[Array]) -> list[Array]:
    if module.stage < Stage.PARTITIONED:
        return evaluate(module, *inputs)
    partitions = range(module.num_partitions)
    tiles = [
        [
            shard_of(array, place.sharding, place.shape, partition)
            for array, place in zip(inputs, boundary.inputs, strict=True)
        ]
        for _ in range(module.replica_count)
        for partition in partitions
    ]
    results = evaluate_partitions(module, tiles)
    return [
        gather([results[partition][k] for partition in partitions], place.sharding, place.shape)
        for k, place in enumerate(boundary.outputs)
    ]
