"""The instruction that amplifies rounding most, among those that an output depends on.

Two evaluations are compared as they go, one without noise and one with it: an instruction's gain is the relative error
of its result over that of its operands, both by the largest element. Of large arrays a few elements stand for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeAlias

import numpy as np

from launch.data.inputs import Array
from spmd.evaluator.device import Device, Steps
from spmd.evaluator.op_tables import OpTables
from spmd.evaluator.registry import Evaluate, EvaluateInSteps
from spmd.evaluator.value import Operands, PerDevice, Value, flatten
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import leaves

#: Number of elements of an array that are compared, and of results of the first evaluation that are stored.
_ELEMENTS = 64
_MOST_RESULTS = 20_000
#: Relative error below which operands count as exact: half a unit in the last place of f32.
_LEAST_ERROR = 2.0**-24

Sketch: TypeAlias = tuple[Array, ...]
"""A few elements of each array of a value."""


@dataclass
class Amplification:
    """Amplification and relative errors of results. It observes two evaluations; ``second`` begins the second one."""

    amplification: dict[HloInstruction, float] = field(default_factory=dict)
    errors: dict[HloInstruction, float] = field(default_factory=dict)
    _first: list[tuple[Sketch, Sketch]] = field(default_factory=list)
    _number: int = -1

    def second(self) -> None:
        """Compare what comes from now on with what was seen before, result by result in the same order."""
        self._number = 0

    def observed(self, tables: OpTables) -> OpTables:
        """Return `tables` whose functions report operands and results."""

        def plain(opcode: Opcode) -> Evaluate | None:
            evaluate = tables.plain(opcode)
            if evaluate is None:
                return None

            def seen(instruction: HloInstruction, operands: Operands) -> Value:
                value = evaluate(instruction, operands)
                self._see(instruction, operands, value)
                return value

            return seen

        def in_steps(opcode: Opcode) -> EvaluateInSteps | None:
            evaluate = tables.in_steps(opcode)
            if evaluate is None:
                return None

            def seen(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
                value = yield from evaluate(instruction, operands, device)
                self._see(instruction, operands, value)
                return value

            return seen

        return replace(tables, plain=plain, in_steps=in_steps)

    def _see(self, instruction: HloInstruction, operands: Operands, value: Value) -> None:
        if self._number < 0:
            if len(self._first) < _MOST_RESULTS:
                self._first.append((_sketch(operands), _sketch((value,))))
            return
        if self._number < len(self._first):
            given, result = self._first[self._number]
            before = max(_relative_error(given, _sketch(operands)), _LEAST_ERROR)
            error = _relative_error(result, _sketch((value,)))
            self.errors[instruction] = max(error, self.errors.get(instruction, 0.0))
            self.amplification[instruction] = max(
                error / before, self.amplification.get(instruction, 0.0)
            )
        self._number += 1


def amplifiers(
    module: HloModule, numbers: Sequence[int], evaluate: Callable[[Amplification, bool], object]
) -> dict[int, str]:
    """Name the instruction of the largest gain for each of the outputs `numbers`; none where nothing was observed.

    From the output back, it is looked for along the operands of the largest relative error.

    `evaluate` runs `module` with the tables of an `Amplification`, with noise if its second argument is true.
    """
    amplification = Amplification()
    evaluate(amplification, False)
    amplification.second()
    evaluate(amplification, True)
    named = {}
    for number in numbers:
        found = [
            (amplification.amplification.get(i, 0.0), i)
            for i in _path(module, number, amplification)
        ]
        gain, worst = max(found, key=lambda pair: pair[0], default=(0.0, None))
        if worst is not None and gain > 0:
            named[number] = _located(worst, module)
    return named


def _located(instruction: HloInstruction, module: HloModule) -> str:
    """Return the name of `instruction`, with its computation unless that is the entry."""
    computation = instruction.parent
    if computation is None or computation is module.entry:
        return instruction.name
    return f"{instruction.name} in {computation.name}"


def _path(module: HloModule, number: int, amplification: Amplification) -> Iterator[HloInstruction]:
    """Yield the instructions from leaf ``number`` of the result backward, each time to the operand with the largest
    relative error.

    The instructions of called computations follow their caller.
    """
    value: HloInstruction | None = module.entry.root
    if value is not None and value.opcode is Opcode.TUPLE:
        index = [index for index, _ in leaves(value.shape)][number]
        value = value.operands[index[0]]
    while value is not None:
        yield from _with_callees(value)
        value = max(
            value.operands, key=lambda one: amplification.errors.get(one, 0.0), default=None
        )


def _with_callees(instruction: HloInstruction) -> Iterator[HloInstruction]:
    """Yield ``instruction`` and all instructions of the computations that it calls, each once."""
    yield instruction
    work = list(instruction.called_computations)
    found: dict[HloComputation, None] = {}
    while work:
        computation = work.pop()
        if computation not in found:
            found[computation] = None
            yield from computation.instructions
            work.extend(c for i in computation.instructions for c in i.called_computations)


def _sketch(values: Operands) -> Sketch:
    arrays = []
    for value in values:
        one = next(iter(value.versions.values())) if isinstance(value, PerDevice) else value
        for leaf in flatten(one):
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind != "b":
                arrays.append(_few(leaf))
    return tuple(arrays)


def _few(x: Array) -> Array:
    step = max(1, x.size // _ELEMENTS)
    few = x.flat[:: step | 1] if x.size else x.reshape(-1)
    return few.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _relative_error(exact: Sketch, noisy: Sketch) -> float:
    """Return the largest error of an array over its largest element; 0 if the sketches do not fit each other."""
    worst = 0.0
    for one, other in zip(exact, noisy, strict=False):
        if one.shape == other.shape and one.size:
            error, size = float(np.abs(one - other).max()), float(np.abs(one).max())
            if np.isfinite(error) and error > 0:
                worst = max(worst, error / size if size else 1.0)
    return worst
