"""The cells (opcode, element type, edge class) that a run of this folder computed and compared with a definition.

A cell is recorded where it happens: while a judging test runs, every instruction that the evaluator executes notes the
edge classes of the values it was given. So nothing is claimed by a list; what no test fills stands in declared.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import pytest

from spmd.evaluator.registry import EVALUATORS, IN_STEPS, ON_DEVICE
from spmd.evaluator.value import Value, flatten
from spmd.hlo import Opcode
from spmd.hlo.instruction import HloInstruction
from spmd.shape import PrimitiveType
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS, bounds


class Edge(Enum):
    """Classes of values and of shapes; the value is the heading in the document."""

    ORDINARY = "ordinary"
    ZERO = "0"
    MINUS_ZERO = "-0"
    INFINITE = "inf"
    NAN = "nan"
    DENORMAL = "denormal"
    LEAST = "least"
    GREATEST = "greatest"
    EMPTY = "empty dim"
    ONE = "size-1 dim"


Cell = tuple[Opcode, str, Edge]
_SHAPES = frozenset({Edge.EMPTY, Edge.ONE})


@cache
def edges_of(kind: str) -> frozenset[Edge]:
    """The classes that the element type has, from its format: pred has no denormals, f8e8m0fnu no zero."""
    if kind == "pred":
        return frozenset({Edge.ORDINARY, Edge.ZERO, *_SHAPES})
    if kind in INTEGERS:
        low, high = bounds(kind)
        has = {Edge.LEAST: low < 0, Edge.GREATEST: high > 0, Edge.ORDINARY: INTEGERS[kind] > 1}
        return frozenset({Edge.ZERO, *_SHAPES, *(e for e in has if has[e])})
    form = FLOATS[COMPLEX.get(kind, kind)]
    has = {
        Edge.ZERO: form.flavour != "unsigned",
        Edge.MINUS_ZERO: form.flavour not in ("unsigned", "fnuz"),
        Edge.INFINITE: form.flavour == "ieee",
        Edge.NAN: form.flavour != "finite",
        Edge.DENORMAL: form.flavour != "unsigned",
    }
    ends = (Edge.LEAST, Edge.GREATEST)
    return frozenset({Edge.ORDINARY, *ends, *_SHAPES, *(e for e in has if has[e])})


def edges_in(kind: str, x: np.ndarray[Any, Any]) -> Iterator[Edge]:
    """The classes of the elements and dimensions of ``x``.

    Least and greatest are those of the finite numbers. Ordinary is what is none of the others.
    """
    if 0 in x.shape:
        yield Edge.EMPTY
    if 1 in x.shape:
        yield Edge.ONE
    if not x.size:
        return
    if kind == "pred":
        yield from ((Edge.ZERO,) if not x.all() else ())
        yield from ((Edge.ORDINARY,) if x.any() else ())
        return
    if kind in INTEGERS:
        wide = x.astype(np.int64 if kind[0] == "s" else np.uint64)
        low, high = bounds(kind)
        found = {Edge.ZERO: wide == 0, Edge.GREATEST: (wide == high) & (high != 0)}
        found[Edge.LEAST] = (wide == low) & (low != 0)
    else:
        real = np.concatenate([x.real.ravel(), x.imag.ravel()]) if kind in COMPLEX else x
        real = real.astype(np.float64)
        form = FLOATS[COMPLEX.get(kind, kind)]
        size = np.abs(real)
        found = {
            Edge.ZERO: (real == 0) & ~np.signbit(real),
            Edge.MINUS_ZERO: (real == 0) & np.signbit(real),
            Edge.INFINITE: np.isinf(real),
            Edge.NAN: np.isnan(real),
            Edge.DENORMAL: (size > 0) & (size < 2.0**form.least_exponent),
            Edge.GREATEST: real == float(form.largest),
            Edge.LEAST: real
            == (-1 if form.flavour != "unsigned" else 0.5**254) * float(form.largest),
        }
    plain = ~np.logical_or.reduce(list(found.values()))
    yield from (edge for edge, where in found.items() if where.any())
    if plain.any():
        yield Edge.ORDINARY


#: Operands that are data where not all are: the others are indices, sizes, flags, random bits.
_DATA: dict[Opcode, tuple[int, ...]] = {
    Opcode.SELECT: (1, 2),
    Opcode.GATHER: (0,),
    Opcode.DYNAMIC_SLICE: (0,),
    Opcode.DYNAMIC_UPDATE_SLICE: (0, 1),
    Opcode.RAGGED_DOT: (0, 1),
    Opcode.SCALED_DOT: (0, 1),
    Opcode.SET_DIMENSION_SIZE: (0,),
    Opcode.DYNAMIC_RESHAPE: (0,),
    Opcode.STOCHASTIC_CONVERT: (0,),
    Opcode.RAGGED_ALL_TO_ALL: (0, 1),
    Opcode.COLLECTIVE_PERMUTE: (0,),
}
#: Opcodes whose element type is that of the result.
_MAKES = frozenset(
    {
        Opcode.CONSTANT,
        Opcode.IOTA,
        Opcode.PARTITION_ID,
        Opcode.REPLICA_ID,
        Opcode.RNG,
        Opcode.RNG_BIT_GENERATOR,
        Opcode.RNG_GET_AND_UPDATE_STATE,
        Opcode.RECV,
        Opcode.RECV_DONE,
    }
)


def data_of(instruction: HloInstruction, operands: tuple[Value, ...], result: Value) -> list[Value]:
    opcode = instruction.opcode
    if opcode in _MAKES:
        return [result[1]] if opcode is Opcode.RNG_BIT_GENERATOR else [result]  # type: ignore[index]
    if opcode is Opcode.CONDITIONAL:
        return list(operands[1:])
    if opcode is Opcode.SCATTER:
        arrays = len(operands) // 2
        return [*operands[:arrays], *operands[arrays + 1 :]]
    return [operands[i] for i in _DATA.get(opcode, range(len(operands)))]


class Recorder:
    """Collects cells while ``judging``; the registries' functions are wrapped for the whole session."""

    def __init__(self) -> None:
        self.cells: set[Cell] = set()
        self.judging = False
        #: The test compares shapes with a vector that another test judges: values do not count.
        self.shapes_alone = False
        #: Whether this session runs all tests of the folder.
        self.whole = False

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for registry in (EVALUATORS, ON_DEVICE):
            for opcode in list(registry):
                patch.setitem(registry._entries, opcode, self._plain(registry[opcode]))
        for opcode in list(IN_STEPS):
            patch.setitem(IN_STEPS._entries, opcode, self._in_steps(IN_STEPS[opcode]))

    def _plain(self, evaluate: Callable[..., Value]) -> Callable[..., Value]:
        def observed(instruction: HloInstruction, operands: tuple[Value, ...], *more: Any) -> Value:
            result = evaluate(instruction, operands, *more)
            if self.judging:
                self.note(instruction, operands, result)
            return result

        return observed

    def _in_steps(self, evaluate: Callable[..., Any]) -> Callable[..., Any]:
        def observed(
            instruction: HloInstruction, operands: tuple[Value, ...], device: Any
        ) -> Generator[Any, Any, Value]:
            result = yield from evaluate(instruction, operands, device)
            if self.judging:
                self.note(instruction, operands, result)
            return result

        return observed

    def note(self, instruction: HloInstruction, operands: tuple[Value, ...], result: Value) -> None:
        opcode, seen = instruction.opcode, self.cells
        shapes: set[Edge] = set()
        kinds: list[str] = []
        for x in flatten(tuple(data_of(instruction, operands, result))):
            if isinstance(x, np.ndarray):
                kind = str(PrimitiveType.from_numpy(x.dtype))
                kinds.append(kind)
                if any((opcode, kind, edge) not in seen for edge in edges_of(kind)):
                    found = set(edges_in(kind, x))
                    found &= _SHAPES if self.shapes_alone else found
                    seen.update((opcode, kind, edge) for edge in found)
        for x in flatten(result):
            if isinstance(x, np.ndarray):
                shapes.update((Edge.EMPTY,) if 0 in x.shape else ())
                shapes.update((Edge.ONE,) if 1 in x.shape else ())
        seen.update((opcode, kind, edge) for kind in kinds[:1] for edge in shapes)


RECORDER = Recorder()
