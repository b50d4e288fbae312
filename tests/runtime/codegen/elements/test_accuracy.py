"""Native functions are within two units in the last place, and exact at their edges."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
from tests.documents.native_math import (
    FUNCTIONS,
    HAS_EXTENDED,
    Function,
    Worst,
    exact_values,
    native,
    ulps,
    worst,
)

P = PrimitiveType
ONE_ARGUMENT = [function for function in FUNCTIONS if function.arity == 1]
NAMES = {function.opcode: function for function in FUNCTIONS}


def name(function: Function) -> str:
    return function.opcode.value


@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_f32(function: Function) -> None:
    found = worst(function, P.F32, 1 << 18)
    assert found.ulps <= 2, found


@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_f64(function: Function) -> None:
    fast = function.reference is not None and HAS_EXTENDED
    found = worst(function, P.F64, 1 << 16 if fast else 1 << 10)
    assert found.ulps <= 2, found


@pytest.mark.parametrize("kind", [P.BF16, P.F16])
@pytest.mark.parametrize("function", ONE_ARGUMENT, ids=name)
def test_every_number_of_16_bits_is_rounded_once(function: Function, kind: PrimitiveType) -> None:
    """Two units of f32 are 2^-12 of f16's."""
    x = np.arange(1 << 16, dtype=np.uint16).view(kind.numpy)
    found = ulps(native(function.opcode, kind, [x]), exact_values(function, kind, [x]), kind)
    at = int(np.argmax(found))
    assert found[at] <= 0.5 + 2**-12, Worst(float(found[at]), (float(x[at]),))


#: The numbers of each format that lie closest to a multiple of pi / 2 (J.-M. Muller, "Elementary Functions", ch. 11).
NEAREST_TO_QUARTER_TURN = {P.F64: 6381956970095103 * 2.0**797, P.F32: 16367173 * 2.0**72}


@pytest.mark.parametrize("kind", [P.F32, P.F64])
@pytest.mark.parametrize("opcode", [Opcode.SINE, Opcode.COSINE, Opcode.TAN])
def test_arguments_next_to_quarter_turns(opcode: Opcode, kind: PrimitiveType) -> None:
    if kind is P.F64 and not HAS_EXTENDED:
        pytest.skip("80-bit numbers hold the exact values")
    multiples = np.arange(1, 3000) * (np.pi / 2)
    x = np.concatenate([multiples, -multiples, [NEAREST_TO_QUARTER_TURN[kind]]]).astype(kind.numpy)
    found = ulps(native(opcode, kind, [x]), exact_values(NAMES[opcode], kind, [x]), kind)
    assert found.max() <= 2, x[np.argmax(found)]


@pytest.mark.parametrize(
    ("opcode", "least", "most"),
    [(Opcode.TANH, -1.0, 1.0), (Opcode.ERF, -1.0, 1.0), (Opcode.LOGISTIC, 0.0, 1.0)],
)
def test_saturating_functions_grow_and_stay_within_their_limits(
    opcode: Opcode, least: float, most: float
) -> None:
    """The arguments leave less than 2^-10 to the limit.

    They are neighbouring numbers, and sparser ones up to the largest.
    """
    start = np.float32(7.0 if opcode is Opcode.LOGISTIC else 4.2 if opcode is Opcode.TANH else 2.5)
    x = (np.arange(1 << 22, dtype=np.uint32) + start.view(np.uint32)).view(np.float32)
    every = np.concatenate([x, np.geomspace(x[-1], 3e38, 1000, dtype=np.float32)])
    y = native(opcode, P.F32, [every])
    steps = np.diff(y)
    assert y.max() == most
    assert (steps >= 0).all()
    assert native(opcode, P.F32, [-every]).min() >= least


@pytest.mark.parametrize("kind", [P.F32, P.F64, P.BF16])
@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_an_element_has_the_same_bits_wherever_it_stands(
    function: Function, kind: PrimitiveType
) -> None:
    """An element stands in the vectors of a long row, in the rest of the row, or alone."""
    rng = np.random.default_rng(3)
    operands = [(rng.standard_normal(101) * 4).astype(kind.numpy) for _ in range(function.arity)]
    together = native(function.opcode, kind, operands)
    alone = [native(function.opcode, kind, [x[i : i + 1] for x in operands]) for i in range(101)]
    assert np.concatenate(alone).tobytes() == together.tobytes()
