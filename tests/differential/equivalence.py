"""The checker: evaluate(logical) == gather(lock-step evaluation of the partitioned module on scattered inputs).

It reads the printed shardings of the entry's parameters and root by its own definition (tiling.py) and imports nothing
of what it checks. Padding of the inputs holds nan (extreme values for integers), so a program that lets it reach a
result is found out. Every device's copy of every tile is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import spmd
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, Shape, leaves
from tests.differential.demands import output_demands, parameter_demands
from tests.differential.reference_f64 import evaluate_f64, magnitude
from tests.differential.tiling import Tiling, gather, read_tiling, same_bits, scatter, split_tuple
from tests.differential.tolerance import difference, tolerance_of, worst_ratio

Array = np.ndarray[Any, np.dtype[Any]]


class NotEquivalentError(AssertionError):
    """The partitioned program computes something else; the message lists each finding."""


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of one program. ``inexact``: how many outputs differ in any bit; ``worst``: the largest difference

    over its tolerance (0 where none differs); ``findings``: a line for each output that is further off.
    """

    inexact: int = 0
    worst: float = 0.0
    findings: tuple[str, ...] = ()

    def require(self, *others: str) -> Comparison:
        """This, where there is no finding, nor any in ``others``; NotEquivalentError otherwise."""
        if others or self.findings:
            raise NotEquivalentError("\n".join((*others, *self.findings)))
        return self


def check_equivalence(module: HloModule, num_devices: int, inputs: Sequence[Array]) -> HloModule:
    """Partition ``module`` and compare on ``inputs`` (global arrays, one per parameter leaf).

    Returns the partitioned module; raises NotEquivalentError.
    """
    partitioned = spmd.partition(module, num_devices)
    check_partitioned(module, partitioned, num_devices, inputs)
    return partitioned


def check_partitioned(
    module: HloModule, partitioned: HloModule, num_devices: int, inputs: Sequence[Array]
) -> Comparison:
    """``partitioned`` computes per device what ``module`` computes; NotEquivalentError otherwise."""
    findings: list[str] = []
    parameters = _parameter_tilings(partitioned, num_devices)
    outputs = _root_tilings(partitioned, num_devices)
    findings += _unmet("parameter", parameter_demands(module, num_devices), parameters)
    findings += _unmet("output", output_demands(module, num_devices), outputs)
    findings += _wrong_shapes(module, partitioned, parameters, outputs)
    if findings:
        raise NotEquivalentError("\n".join(findings))
    wanted = [np.asarray(x) for x in spmd.evaluate(module, *inputs)]
    got, disagreements = evaluate_on_devices(
        partitioned, num_devices, inputs, [x.shape for x in wanted]
    )
    return compare(module, inputs, wanted, got).require(*disagreements)


def evaluate_on_devices(
    partitioned: HloModule,
    num_devices: int,
    inputs: Sequence[Array],
    dims: Sequence[tuple[int, ...]],
) -> tuple[list[Array], list[str]]:
    """Global outputs, of sizes ``dims``, of a per-device program on global inputs, padding filled with nan.

    And a line for each copy of a tile that differs from another device's.
    """
    parameters = _parameter_tilings(partitioned, num_devices)
    outputs = _root_tilings(partitioned, num_devices)
    scattered = [scatter(x, t) for x, t in zip(inputs, parameters, strict=True)]
    per_device = spmd.evaluate_partitions(
        partitioned, [[parts[d] for parts in scattered] for d in range(num_devices)]
    )
    wholes, findings = [], []
    for i, (size, tiling) in enumerate(zip(dims, outputs, strict=True)):
        parts = [np.asarray(per_device[d][i]) for d in range(num_devices)]
        whole, disagreements = gather(parts, tiling, size)
        findings += [f"output {i}: {line}" for line in disagreements]
        wholes.append(whole)
    return wholes, findings


def check_execution(module: HloModule, num_devices: int, inputs: Sequence[Array]) -> Comparison:
    """Compiled through all stages and run on loopback devices, ``module`` gives what the evaluator gives.

    The buffer and schedule checkers look at what is run. Raises NotEquivalentError. Nothing is asked of a program with
    an op that the runtime refuses by name.
    """
    executable = spmd.compile(module, num_devices, options=spmd.CompileOptions(check=True))
    got = [np.asarray(x) for x in executable.run(*inputs)]
    wanted = [np.asarray(x) for x in spmd.evaluate(module, *inputs)]
    return compare(module, inputs, wanted, got).require()


def compare(
    module: HloModule,
    inputs: Sequence[Array],
    wanted: Sequence[Array],
    got: Sequence[Array],
    *,
    masked: bool = False,
) -> Comparison:
    """Findings are the outputs that differ by more than the rounding of ``module`` explains.

    Rounding is measured by the largest value on the way, or, where the program is ``masked``, by the largest of each
    result: of what is masked out, which may be as large as numbers go, nothing is left in a result.
    """
    differing = [i for i, (w, g) in enumerate(zip(wanted, got, strict=True)) if not same_bits(w, g)]
    if not differing:
        return Comparison()
    reference = evaluate_f64(module, inputs)
    worst, findings = 0.0, []
    for i in differing:
        exact = reference[0][i] if reference is not None else None
        path = reference[1] if reference is not None else 0.0
        if masked and exact is not None:
            path = magnitude(exact)
        tolerance = tolerance_of(wanted[i], exact, path)
        worst = max(worst, worst_ratio(wanted[i], got[i], tolerance))
        line = difference(wanted[i], got[i], tolerance)
        if line:
            findings.append(f"output {i}: {line}")
    return Comparison(len(differing), worst, tuple(findings))


# ---- the shardings and shapes of the partitioned entry
def _parameter_tilings(partitioned: HloModule, num_devices: int) -> list[Tiling]:
    return [
        tiling
        for parameter in partitioned.entry.parameters
        for tiling in _tilings(str(parameter.sharding), parameter.shape, num_devices)
    ]


def _root_tilings(partitioned: HloModule, num_devices: int) -> list[Tiling]:
    root = partitioned.entry.root
    return _tilings(str(root.sharding), root.shape, num_devices)


def _tilings(text: str, shape: Shape, num_devices: int) -> list[Tiling]:
    arrays = [leaf for _, leaf in leaves(shape) if isinstance(leaf, ArrayShape)]
    parts = split_tuple(text)
    if len(parts) == 1 and len(arrays) != 1:
        parts = parts * len(arrays)
    return [
        read_tiling(part, leaf.rank, num_devices) for part, leaf in zip(parts, arrays, strict=True)
    ]


def _unmet(what: str, demanded: Sequence[Tiling | None], found: Sequence[Tiling]) -> list[str]:
    return [
        f"{what} {i}: the annotation demands {want}, the program says {have}"
        for i, (want, have) in enumerate(zip(demanded, found, strict=True))
        if want is not None and want != have
    ]


def _wrong_shapes(
    module: HloModule,
    partitioned: HloModule,
    parameters: Sequence[Tiling],
    outputs: Sequence[Tiling],
) -> list[str]:
    """Local shapes of the entry that are not the tiles of the global ones."""
    findings = []
    whole = [leaf for p in module.entry.parameters for _, leaf in leaves(p.shape)]
    local = [leaf for p in partitioned.entry.parameters for _, leaf in leaves(p.shape)]
    pairs = [("parameter", *x) for x in zip(whole, local, parameters, strict=True)]
    whole = [leaf for _, leaf in leaves(module.entry.root.shape)]
    local = [leaf for _, leaf in leaves(partitioned.entry.root.shape)]
    pairs += [("output", *x) for x in zip(whole, local, outputs, strict=True)]
    for what, globally, locally, tiling in pairs:
        if not isinstance(globally, ArrayShape) or not isinstance(locally, ArrayShape):
            continue
        tile = tiling.local_dims(globally.dims)
        if (locally.element_type, locally.dims) != (globally.element_type, tile):
            findings.append(f"{what} {globally} has tiles of {tile}, the program holds {locally}")
    return findings
