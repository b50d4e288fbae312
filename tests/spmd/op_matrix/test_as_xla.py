"""The evaluator against XLA's CPU backend, where jaxlib is installed: one program per opcode, all its element types.

What differs on purpose is written in docs/numerics.md, and ``meant`` knows it; anything else is a mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from spmd.evaluator import evaluate
from spmd.text.parser import parse_module
from tests.spmd.op_matrix import allowed
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS
from tests.spmd.op_matrix.judge import same, scalars
from tests.spmd.op_matrix.run import array
from tests.spmd.op_matrix.values import ALL_TYPES, values

jax = pytest.importorskip("jax", reason="XLA's CPU backend comes with the jax extra")

#: XLA compiles no arithmetic on one-bit integers, and its CPU backend none on floats of six bits.
_NOT_COMPUTED = ("s1", "u1", "f6e2m3fn", "f6e3m2fn")
TYPES = tuple(k for k in ALL_TYPES if k not in _NOT_COMPUTED)
#: Its CPU backend expands these from JAX's own definitions only, or not at all, from HLO.
NOT_COMPILED = {"acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"}
_ULPS = 24


def xla(text: str, arguments: Sequence[Any]) -> list[Any]:
    """Outputs of the program compiled by XLA for one CPU device."""
    from jaxlib import _hlo, _jax

    jax.config.update("jax_enable_x64", True)
    device = jax.local_devices(backend="cpu")[0]
    module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    executable = device.client.compile_and_load(
        _jax.mlir.hlo_to_stablehlo(module), _jax.DeviceList((device,)), _jax.CompileOptions()
    )
    results = executable.execute_sharded([jax.device_put(x, device) for x in arguments])
    return [np.asarray(x[0]) for x in results.disassemble_into_single_device_arrays()]


def is_denormal(kind: str, x: Any) -> bool:
    """XLA's CPU backend may take it for zero: denormals of f32 and f64, what is one in f32, and what rounds up from one."""
    if isinstance(x, complex):
        return is_denormal(kind, x.real) or is_denormal(kind, x.imag)
    tiny = 2.0**-1022 if kind in ("f64", "c128") else 2.0**-126
    return isinstance(x, float) and 0 < abs(x) <= tiny


def near(kind: str, a: Any, b: Any) -> bool:
    if kind in COMPLEX:
        part = COMPLEX[kind]
        if near(part, a.real, b.real) and near(part, a.imag, b.imag):
            return True
        error = _ULPS * 2.0 ** -FLOATS[part].mantissa
        return max(abs(a.real - b.real), abs(a.imag - b.imag)) <= error * max(1.0, abs(a))
    if kind in FLOATS:
        if same(a, b) or (a == b == 0):
            return True
        both = math.isfinite(a) and math.isfinite(b)
        return both and abs(a - b) <= _ULPS * FLOATS[kind].ulp(a)
    return bool(a == b)


def meant(opcode: str, kind: str, xs: tuple[Any, ...], ours: Any) -> bool:
    """docs/numerics.md, "Where XLA's own answers differ"."""
    if any(is_denormal(kind, x) for x in (*xs, ours)):
        return True
    if kind in COMPLEX:
        parts = [p for x in (*xs, ours) for p in (complex(x).real, complex(x).imag)]
        if opcode == "sqrt" and xs[0].imag == 0:
            return True
        unbounded = not all(map(math.isfinite, parts))
        return (unbounded and opcode != "convert") or opcode in ("power", "atan2")
    if kind in INTEGERS:
        return (opcode == "power" and xs[1] > 63) or (opcode == "popcnt" and INTEGERS[kind] < 8)
    return False


def differing(opcode: str, result: str, kind: str, xs: Any, ours: Any, theirs: Any) -> list[Any]:
    return [
        (opcode, kind, x, a, b)
        for x, a, b in zip(xs, scalars(ours), scalars(theirs), strict=True)
        if not near(result, a, b) and not meant(opcode, kind, x, a)
    ]


def compare(opcode: str, kinds: Sequence[str], arity: int) -> list[Any]:
    lines, arguments, inputs, results = [], [], [], []
    for number, kind in enumerate(kinds):
        few = values(kind)[:: 5 if arity == 2 and kind in COMPLEX else 1]
        tried = list(itertools.product(few, repeat=arity))
        names = [f"x{number}.{i}" for i in range(arity)]
        for i, name in enumerate(names):
            lines.append(f"{name} = {kind}[{len(tried)}] parameter({len(arguments)})")
            arguments.append(array(kind, [x[i] for x in tried]))
        results.append(allowed.result_type(opcode, kind))
        lines.append(f"r{number} = {results[-1]}[{len(tried)}] {opcode}({', '.join(names)})")
        inputs.append(tried)
    each = ", ".join(f"r{n}" for n in range(len(kinds)))
    shapes = ", ".join(f"{r}[{len(x)}]" for r, x in zip(results, inputs, strict=True))
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines)
    text += f"\nROOT t = ({shapes}) tuple({each})\n}}"
    ours, theirs = evaluate(parse_module(text), *arguments), xla(text, arguments)
    found = []
    for result, kind, xs, a, b in zip(results, kinds, inputs, ours, theirs, strict=True):
        found += differing(opcode, result, kind, xs, a, b)
    return found


@pytest.mark.parametrize("opcode", [o for o in allowed.UNARY if o not in NOT_COMPILED])
def test_unary(opcode: str) -> None:
    assert compare(opcode, [k for k in allowed.UNARY[opcode] if k in TYPES], 1) == []


@pytest.mark.parametrize("opcode", allowed.BINARY)
def test_binary(opcode: str) -> None:
    assert compare(opcode, [k for k in allowed.BINARY[opcode] if k in TYPES], 2) == []


@pytest.mark.parametrize("source", TYPES)
def test_convert(source: str) -> None:
    """All targets of one type; f4e2m1fn 6 saturates in XLA, and complex numbers to pred crash its compiler."""
    xs = [x for x in values(source) if source != "f4e2m1fn" or abs(x) < 6]
    kinds = [k for k in TYPES if not (source in COMPLEX and k == "pred")]
    lines = [f"r{n} = {k}[{len(xs)}] convert(x)" for n, k in enumerate(kinds)]
    shapes = ", ".join(f"{k}[{len(xs)}]" for k in kinds)
    each = ", ".join(f"r{n}" for n in range(len(kinds)))
    text = f"HloModule m\nENTRY e {{\nx = {source}[{len(xs)}] parameter(0)\n" + "\n".join(lines)
    text += f"\nROOT t = ({shapes}) tuple({each})\n}}"
    given = [array(source, xs)]
    found = []
    outputs = zip(kinds, evaluate(parse_module(text), *given), xla(text, given), strict=True)
    for kind, a, b in outputs:
        found += differing("convert", kind, source, [(x,) for x in xs], a, b)
    assert found == []


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64"])
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox", "rng_default"])
def test_random_bits(kind: str, algorithm: str) -> None:
    words = 2 if algorithm == "rng_three_fry" else 3
    state = np.array([0x1234567890ABCDEF, 2**64 - 2, 3][:words], np.uint64)
    for dims in ("16", "7", "3,5", "2,3,4", "1", "", "0"):
        text = (
            f"HloModule m\nENTRY e {{ s = u64[{words}] parameter(0) ROOT r = (u64[{words}], {kind}[{dims}])"
            f" rng-bit-generator(s), algorithm={algorithm} }}"
        )
        for a, b in zip(evaluate(parse_module(text), state), xla(text, [state]), strict=True):
            assert a.tobytes() == b.tobytes(), dims
