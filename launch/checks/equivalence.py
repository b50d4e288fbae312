"""Does a transformed module still mean what it meant? Both are evaluated on the same random inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from launch.checks.expect import Expected, check_output, default_tolerance
from launch.checks.reference import evaluate_per_device
from launch.data.inputs import Array, seeded_inputs
from runtime.arrays.sharded_arrays import ArraySpec, cut_to_sizes, have_sizes, num_results
from runtime.compile import array_specs
from spmd.errors import CheckFailed, SpmdError
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.verifier import verify

#: Number of outputs that a message names.
MOST_NAMED = 6
_SEED = 0


def verify_equivalent(before: HloModule, after: HloModule, logical: HloModule | None) -> None:
    """Raise CheckFailed, with the outputs' names, unless the reference evaluator returns equal outputs of both on
    random inputs.

    A per-device module is evaluated on all its devices, and its tiles are gathered. ``logical``: the unpartitioned
    module of both, whose entry has the global shapes.
    """
    specs = array_specs(before if before.stage >= Stage.PARTITIONED else after, logical)
    inputs = seeded_inputs(_SEED, [one.shape for one in specs[0]])
    wanted, found = (_outputs(module, inputs, specs) for module in (before, after))
    differences = _differences(wanted, found, specs[1])
    if differences:
        raise CheckFailed(
            f"{after.name}: not equivalent to the module before the passes: {_listed(differences)}"
        )


class EquivalenceCheck:
    """Describes how a module differs in results from another one of the same stage; "" if it does not.

    The results of the other one are cached until another one is compared.
    """

    def __init__(self) -> None:
        self._wanted: _Wanted | None = None

    def reference(self, before: HloModule) -> _Wanted:
        """Return the results of ``before``. Raises SpmdError if it does not verify or has no value."""
        if self._wanted is None or self._wanted.module is not before:
            verify(before)
            specs = array_specs(before, before if before.stage < Stage.PARTITIONED else None)
            inputs = seeded_inputs(_SEED, [one.shape for one in specs[0]])
            self._wanted = _Wanted(before, specs, inputs, _outputs(before, inputs, specs))
        return self._wanted

    def __call__(self, before: HloModule, after: HloModule) -> str:
        try:
            wanted = self.reference(before)
        except SpmdError:
            return ""  # the program is invalid, so a pass cannot make it wrong
        try:
            verify(after)
            found = _outputs(after, wanted.inputs, wanted.specs)
        except SpmdError as error:
            return str(error)
        return _listed(_differences(wanted.outputs, found, wanted.specs[1]))


def _listed(differences: Sequence[str]) -> str:
    rest = len(differences) - MOST_NAMED
    return ", ".join(differences[:MOST_NAMED]) + (f" and {rest} more outputs" if rest > 0 else "")


ArraySpecs: TypeAlias = tuple[Sequence[ArraySpec], Sequence[ArraySpec]]


@dataclass(frozen=True)
class _Wanted:
    module: HloModule
    specs: ArraySpecs
    inputs: Sequence[Array]
    outputs: Sequence[Array]


def _differences(
    wanted: Sequence[Array], found: Sequence[Array], specs: Sequence[ArraySpec]
) -> list[str]:
    """Return a phrase for each output that differs by more than its type's tolerance."""
    differences = []
    for k, (want, got, spec) in enumerate(zip(wanted, found, specs, strict=True)):
        tolerance = default_tolerance(spec.shape.element_type, want)
        check = check_output(got, Expected(f"out{k}", spec.shape, want, tolerance))
        if not check.ok:
            differences.append(
                f"{check.name} by {check.max_abs_diff:.3g} ({check.of_tolerance:.2g} of tolerance)"
            )
    return differences


def _outputs(module: HloModule, inputs: Sequence[Array], specs: ArraySpecs) -> list[Array]:
    if module.stage < Stage.PARTITIONED:
        outputs = evaluate(module, *inputs)
    else:
        outputs = evaluate_per_device(module, inputs, specs)
    shapes = [spec.shape for spec in specs[1]]
    if not have_sizes(shapes):
        return outputs
    # One module may hold arrays padded to their bounds that the other has cut.
    return [*cut_to_sizes(outputs, shapes), *outputs[num_results(shapes) :]]
