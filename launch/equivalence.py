"""Does a transformed module still mean what it meant? Both are evaluated on the same random inputs."""

from __future__ import annotations

from collections.abc import Sequence

from launch.expect import Expected, check_output, default_tolerance
from launch.inputs import seeded_inputs
from launch.npz import Array
from launch.reference import evaluate_per_device
from runtime.compile import boundaries
from runtime.sharded_arrays import Boundary
from spmd.errors import CheckFailed
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Stage


def verify_equivalent(
    before: HloModule, after: HloModule, logical: HloModule | None, seed: int = 0
) -> None:
    """CheckFailed, naming the outputs, unless the reference evaluator gives both the same on inputs from ``seed``.

    A per-device module is evaluated on all its devices, its tiles gathered. ``logical``: the unpartitioned module that
    both come from, whose entry has the global shapes.
    """
    places = boundaries(before if before.stage >= Stage.PARTITIONED else after, logical)
    inputs = seeded_inputs(seed, [one.shape for one in places[0]])
    wanted, found = (_outputs(module, inputs, places) for module in (before, after))
    differences = []
    for k, (want, got, place) in enumerate(zip(wanted, found, places[1], strict=True)):
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


def _outputs(
    module: HloModule,
    inputs: Sequence[Array],
    places: tuple[Sequence[Boundary], Sequence[Boundary]],
) -> list[Array]:
    if module.stage < Stage.PARTITIONED:
        return evaluate(module, *inputs)
    return evaluate_per_device(module, inputs, places)
