"""Check a pass on a module that must set it off.

The module and what the pass leaves of it verify; the pass reports a change, and reports one exactly when the printed
module differs; a second run finds nothing more (or says why it may); both modules compute the same on random inputs,
within what the rounding of the original explains: its distance from the same program in double precision.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spmd.errors import SpmdError
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule
from spmd.hlo.clone import clone_module
from spmd.passes.interface import HloPass
from spmd.shape import ArrayShape, PrimitiveType, leaves
from spmd.sharding import HloSharding, ShardingKind
from spmd.verifier import verify
from tests.differential.reference_f64 import magnitude, widened, widened_module
from tests.differential.tiling import same_bits
from tests.differential.tolerance import difference, tolerance_of, worst_ratio
from tests.spmd.passes.triggers.registry import Rng, Trigger

Array = np.ndarray[Any, np.dtype[Any]]

#: Runs after which a pass that may find more in a second one must have come to rest.
MOST_RUNS = 20
_EDGES = (0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"))


class TriggerFailure(AssertionError):  # noqa: N818 - what fails is the pass, not the program
    """A pass did not do what is asked of it; ``module`` is what it was given."""

    def __init__(self, message: str, module: HloModule) -> None:
        super().__init__(message)
        self.module = module


@dataclass(frozen=True)
class Outcome:
    """``worst``: largest error over its tolerance among all outputs (0: equal). ``runs``: until nothing changed."""

    worst: float
    runs: int


def check_trigger(trigger: Trigger, seed: int) -> Outcome:
    """Check the pass on the module of ``seed``; TriggerFailure says what is wrong."""
    rng = np.random.default_rng([zlib.crc32(trigger.name.encode()), seed])
    module = trigger.modules(rng)
    verify(module)
    before = clone_module(module)
    runs = _run_until_settled(trigger, module, before)
    inputs = random_inputs(before, rng, edges=not trigger.finite)
    try:
        wanted, got = evaluate_partitions(before, inputs), evaluate_partitions(module, inputs)
    except SpmdError as error:
        raise TriggerFailure(f"cannot be evaluated: {error}", before) from error
    return Outcome(compare(before, inputs, wanted, got), runs)


def _run_until_settled(trigger: Trigger, module: HloModule, before: HloModule) -> int:
    """Run the pass until nothing changes, and return how many runs changed the module."""
    step, text = trigger.step, str(module)
    for runs in range(MOST_RUNS):
        changed = _run(step, module, before)
        printed = str(module)
        if changed != (printed != text):
            says = "a change where there is none" if changed else "no change where there is one"
            raise TriggerFailure(f"{step} reports {says} (run {runs + 1})", before)
        text = printed
        if not changed:
            if not runs:
                raise TriggerFailure(f"{step} changes nothing", before)
            return runs
        if runs and not trigger.again:
            raise TriggerFailure(f"{step} finds more in a second run", before)
    raise TriggerFailure(f"{step} does not come to rest in {MOST_RUNS} runs", before)


def _run(step: HloPass, module: HloModule, before: HloModule) -> bool:
    try:
        step.check_stage(module)
        changed = step.run(module)
    except SpmdError as error:
        raise TriggerFailure(f"{step} fails: {error}", before) from error
    try:
        verify(module)
    except SpmdError as error:
        raise TriggerFailure(f"{step} leaves what does not verify: {error}", before) from error
    return changed


# ---- values
def random_inputs(module: HloModule, rng: Rng, *, edges: bool) -> list[list[Array]]:
    """Return for every device the leaves of its parameters, which must be arrays where they are sharded.

    Scalars are equal everywhere, since loops and branches need that. Devices with the same tile of a sharded parameter
    have the same array, except those of another replica.
    """
    slots = [
        (leaf, parameter.sharding)
        for parameter in module.entry.parameters
        for _, leaf in leaves(parameter.shape)
        if isinstance(leaf, ArrayShape)
    ]
    whole = bool(rng.random() < 0.5)
    edges = edges and bool(rng.random() < 0.25)
    common = [random_array(rng, shape, whole=whole, edges=edges) for shape, _ in slots]
    held: dict[tuple[int, ...], Array] = {}
    inputs: list[list[Array]] = []
    for device in range(module.num_partitions * module.replica_count):
        replica, partition = divmod(device, module.num_partitions)
        mine = list(common)
        for i, (shape, sharding) in enumerate(slots):
            if shape.dims:
                drawn = random_array(rng, shape, whole=whole, edges=edges)
                tile = _tile(sharding, shape.rank, partition)
                mine[i] = held.setdefault((i, replica, *tile), drawn)
        inputs.append(mine)
    return inputs


def _tile(sharding: HloSharding | None, rank: int, partition: int) -> tuple[int, ...]:
    """Return the tile that the partition holds; it has one of its own where no sharding says."""
    if sharding is not None and sharding.kind is ShardingKind.REPLICATED:
        return ()
    if sharding is None or sharding.tiles is None:
        return (partition,)
    return tuple(int(i) for i in np.argwhere(sharding.tiles.device_ids() == partition)[0][:rank])


def random_array(rng: Rng, shape: ArrayShape, *, whole: bool, edges: bool) -> Array:
    """``whole``: small whole numbers, whose sums are exact in any order. ``edges``: some zeros, infinities and NaN."""
    kind = shape.element_type
    if kind is PrimitiveType.PRED:
        return np.asarray(rng.random(shape.dims) < 0.5)
    if kind.is_integer:
        low = -3 if kind.is_signed_integer else 0
        return np.asarray(rng.integers(low, 8, shape.dims)).astype(kind.numpy)
    values = np.asarray(
        rng.integers(-4, 5, shape.dims).astype(np.float64) if whole else rng.normal(size=shape.dims)
    )
    if edges:
        values = np.where(rng.random(shape.dims) < 0.2, rng.choice(_EDGES, shape.dims), values)
    if kind.is_complex:
        values = values + 1j * np.asarray(rng.integers(-4, 5, shape.dims))
    with np.errstate(all="ignore"):
        return values.astype(kind.numpy)


# ---- comparing
def compare(
    module: HloModule,
    inputs: Sequence[Sequence[Array]],
    wanted: Sequence[Sequence[Array]],
    got: Sequence[Sequence[Array]],
) -> float:
    """The largest error over its tolerance, which is an output's on whatever device it is largest: all run one program."""
    if all(map(_all_same, wanted, got)):
        return 0.0
    exact = _in_double(module, inputs)
    tolerances = [0.0] * len(wanted[0])
    for device, wants in enumerate(wanted):
        references = exact[device] if exact is not None else [None] * len(wants)
        path = max((magnitude(x) for x in references if x is not None), default=0.0)
        for i, (want, reference) in enumerate(zip(wants, references, strict=True)):
            tolerances[i] = max(tolerances[i], tolerance_of(want, reference, path))
    worst = 0.0
    for device, (wants, gots) in enumerate(zip(wanted, got, strict=True)):
        for i, (want, found, tolerance) in enumerate(zip(wants, gots, tolerances, strict=True)):
            line = difference(want, found, tolerance)
            if line:
                raise TriggerFailure(f"device {device}, output {i}: {line}", module)
            worst = max(worst, worst_ratio(want, found, tolerance))
    return worst


def _all_same(wants: Sequence[Array], gots: Sequence[Array]) -> bool:
    return all(map(same_bits, wants, gots))


def _in_double(module: HloModule, inputs: Sequence[Sequence[Array]]) -> list[list[Array]] | None:
    wide = widened_module(module)
    if wide is None:
        return None
    return evaluate_partitions(wide, [[widened(x) for x in arrays] for arrays in inputs])
